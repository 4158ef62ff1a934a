// A stream: operations in the order of issue, on a thread of its own.
//
// With the knob `late` at 1 the thread executes nothing until somebody demands it: a synchronize, an event that is
// queried or waited for, another stream that waits. Then it executes up to that point and no further. At 0 it executes
// as soon as it can.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "memory.h"
#include "trace.h"

namespace simdev {

struct Operation {
    std::function<void()>  run; // on the stream's thread; must not issue to a stream
    TraceRef               trace;
    std::vector<MemoryRef> touches;
    bool                   is_graph = false;
};

class Stream {
public:
    explicit Stream(uint64_t of_device);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream & operator=(const Stream &) = delete;

    const uint64_t id; // from 1, in the order of creation
    const uint64_t device;

    // Returns the operation's position, from 1. Does not block.
    uint64_t push(Operation operation);

    uint64_t n_issued();
    size_t   n_pending();
    bool     is_done(uint64_t position);

    // Lets the thread execute up to there. Does not block.
    void demand(uint64_t position);
    // Demands, and blocks until it is done.
    void wait(uint64_t position);
    // Executes all, blocks, and ends the thread. Nothing may be pushed afterwards.
    void close();
    // Looks at the knob `late` again.
    void wake();
    // The position of the last pending graph that touches this memory, 0 if none does.
    uint64_t last_graph_that_touches(const Memory & memory);

private:
    void work();
    bool may_execute() const; // mutex_ held

    std::mutex              mutex_;
    std::condition_variable changed_;
    std::deque<Operation>   pending_; // the front one stays while it runs
    uint64_t                n_issued_ = 0;
    uint64_t                n_done_ = 0;
    uint64_t                demanded_ = 0;
    bool                    closing_ = false;
    std::thread             thread_; // last: it uses all of the above
};

using StreamRef = std::shared_ptr<Stream>;

StreamRef              open_stream(uint64_t device);
std::vector<StreamRef> live_streams();

// Executes the pending graphs that touch it, as a device that frees memory does. Copies stay pending.
void finish_graphs_that_touch(const Memory & memory);

} // namespace simdev
