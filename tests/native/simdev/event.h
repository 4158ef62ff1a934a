// Events: a recording remembers a position in one stream; an event is its latest recording.
//
// Who waits for an event waits for the recording that it had when the wait was issued: recording it again later moves
// nobody. A recording made while the knob `hold` was 1 is not finished, whatever the stream does, until it is released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "stream.h"

namespace simdev {

struct Recording {
    StreamRef stream;
    uint64_t  position;
};

using RecordingRef = std::shared_ptr<const Recording>;

// A recording of all that was issued to the stream so far. Held when the knob says so.
RecordingRef record(const StreamRef & stream);

// Demands it. Does not block; false while it is held.
bool is_finished(const RecordingRef & recording);

// Blocks until it is released, then demands it and blocks until it is done. Null: returns at once.
void wait_for(const RecordingRef & recording);

size_t n_held();
size_t n_blocked();
void   release_held(size_t n);

// What a ggml event's context is.
class Event {
public:
    void         set(RecordingRef recording);
    RecordingRef get(); // null if never recorded

private:
    std::mutex   mutex_;
    RecordingRef latest_;
};

} // namespace simdev
