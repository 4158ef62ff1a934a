#include "stream.h"

#include <algorithm>
#include <atomic>

#include "knobs.h"

namespace simdev {

namespace {

std::atomic<uint64_t> n_streams{ 0 };

struct Live {
    std::mutex                         mutex;
    std::vector<std::weak_ptr<Stream>> streams;
};

Live & live() {
    static Live & instance = *new Live;
    return instance;
}

void execute(Operation & operation) {
    const auto is_freed = [](const MemoryRef & memory) { return memory->freed.load(); };
    if (std::any_of(operation.touches.begin(), operation.touches.end(), is_freed)) {
        mark_fault(*operation.trace);
    }
    operation.run();
    mark_done(*operation.trace);
}

} // namespace

Stream::Stream(uint64_t of_device) : id(++n_streams), device(of_device), thread_([this] { work(); }) {}

Stream::~Stream() {
    close();
}

uint64_t Stream::push(Operation operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back(std::move(operation));
    changed_.notify_all();
    return ++n_issued_;
}

uint64_t Stream::n_issued() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return n_issued_;
}

size_t Stream::n_pending() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return pending_.size();
}

bool Stream::is_done(uint64_t position) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return n_done_ >= position;
}

void Stream::demand(uint64_t position) {
    const std::lock_guard<std::mutex> lock(mutex_);
    demanded_ = std::max(demanded_, position);
    changed_.notify_all();
}

void Stream::wait(uint64_t position) {
    std::unique_lock<std::mutex> lock(mutex_);
    demanded_ = std::max(demanded_, position);
    changed_.notify_all();
    changed_.wait(lock, [&] { return n_done_ >= position; });
}

void Stream::close() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Stream::wake() {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
}

uint64_t Stream::last_graph_that_touches(const Memory & memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = pending_.size(); i-- > 0;) {
        const auto & touches = pending_[i].touches;
        const auto is_it = [&](const MemoryRef & touched) { return touched.get() == &memory; };
        if (pending_[i].is_graph && std::any_of(touches.begin(), touches.end(), is_it)) {
            return n_done_ + i + 1;
        }
    }
    return 0;
}

bool Stream::may_execute() const {
    return !pending_.empty() && (closing_ || knob(Knob::late) == 0 || demanded_ > n_done_);
}

void Stream::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return may_execute() || (closing_ && pending_.empty()); });
        if (pending_.empty()) {
            return;
        }
        Operation & operation = pending_.front();
        lock.unlock();
        execute(operation);
        lock.lock();
        pending_.pop_front();
        ++n_done_;
        changed_.notify_all();
    }
}

StreamRef open_stream(uint64_t device) {
    auto stream = std::make_shared<Stream>(device);
    const std::lock_guard<std::mutex> lock(live().mutex);
    live().streams.push_back(stream);
    return stream;
}

std::vector<StreamRef> live_streams() {
    const std::lock_guard<std::mutex> lock(live().mutex);
    std::vector<StreamRef>               found;
    std::vector<std::weak_ptr<Stream>> & streams = live().streams;
    const auto is_gone = [&](const std::weak_ptr<Stream> & stream) {
        if (StreamRef alive = stream.lock()) {
            found.push_back(alive);
            return false;
        }
        return true;
    };
    streams.erase(std::remove_if(streams.begin(), streams.end(), is_gone), streams.end());
    return found;
}

void finish_graphs_that_touch(const Memory & memory) {
    for (const StreamRef & stream : live_streams()) {
        if (const uint64_t position = stream->last_graph_that_touches(memory)) {
            stream->wait(position);
        }
    }
}

} // namespace simdev
