#include "event.h"

#include <algorithm>
#include <condition_variable>
#include <deque>

#include "knobs.h"

namespace simdev {

namespace {

struct Held {
    std::mutex               mutex;
    std::condition_variable  changed;
    std::deque<RecordingRef> recordings; // oldest first
    size_t                   n_blocked = 0;

    bool contains(const RecordingRef & recording) const { // mutex held
        return std::find(recordings.begin(), recordings.end(), recording) != recordings.end();
    }
};

Held & held() {
    static Held & instance = *new Held;
    return instance;
}

} // namespace

RecordingRef record(const StreamRef & stream) {
    auto recording = std::make_shared<const Recording>(Recording{ stream, stream->n_issued() });
    if (knob(Knob::hold) == 1) {
        const std::lock_guard<std::mutex> lock(held().mutex);
        held().recordings.push_back(recording);
    }
    return recording;
}

bool is_finished(const RecordingRef & recording) {
    if (recording == nullptr) {
        return true;
    }
    {
        const std::lock_guard<std::mutex> lock(held().mutex);
        if (held().contains(recording)) {
            return false;
        }
    }
    recording->stream->demand(recording->position);
    return recording->stream->is_done(recording->position);
}

void wait_for(const RecordingRef & recording) {
    if (recording == nullptr) {
        return;
    }
    {
        std::unique_lock<std::mutex> lock(held().mutex);
        ++held().n_blocked;
        held().changed.wait(lock, [&] { return !held().contains(recording); });
        --held().n_blocked;
    }
    recording->stream->wait(recording->position);
}

size_t n_held() {
    const std::lock_guard<std::mutex> lock(held().mutex);
    return held().recordings.size();
}

size_t n_blocked() {
    const std::lock_guard<std::mutex> lock(held().mutex);
    return held().n_blocked;
}

void release_held(size_t n) {
    const std::lock_guard<std::mutex> lock(held().mutex);
    auto & recordings = held().recordings;
    const auto n_now = static_cast<std::ptrdiff_t>(std::min(n, recordings.size()));
    recordings.erase(recordings.begin(), recordings.begin() + n_now);
    held().changed.notify_all();
}

void Event::set(RecordingRef recording) {
    const std::lock_guard<std::mutex> lock(mutex_);
    latest_ = std::move(recording);
}

RecordingRef Event::get() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return latest_;
}

} // namespace simdev
