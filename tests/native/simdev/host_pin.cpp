#include "host_pin.h"

#include <mutex>

#include "ggml.h"
#include "knobs.h"
#include "link_cost.h"
#include "memory.h"
#include "trace.h"

namespace simdev {

namespace {

struct Pinned {
    std::mutex mutex;
    size_t     n_bytes = 0; // of all ranges
};

Pinned & pinned() {
    static Pinned & instance = *new Pinned;
    return instance;
}

bool fits(size_t n_bytes) {
    const uint64_t limit = knob(Knob::pin_fails_above_bytes);
    return n_bytes <= limit && pinned().n_bytes <= limit - n_bytes;
}

void trace_now(simdev_kind kind, const void * base, size_t n_bytes, bool is_pinned) {
    simdev_trace_entry made{};
    made.kind = kind;
    made.bytes = n_bytes;
    made.host_pinned = is_pinned;
    made.host_address = reinterpret_cast<uintptr_t>(base);
    charge_call();
    mark_done(*add_trace(made));
}

} // namespace

bool pin_host_memory(void * base, size_t n_bytes) {
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    const bool is_sound = base != nullptr && n_bytes > 0;
    const bool done = is_sound && fits(n_bytes) && adopt_pinned(static_cast<char *>(base), n_bytes);
    if (done) {
        pinned().n_bytes += n_bytes;
    }
    trace_now(SIMDEV_KIND_PIN, base, n_bytes, done);
    return done;
}

void unpin_host_memory(void * base, size_t n_bytes) {
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    const bool                        was_pinned = disown_pinned(static_cast<const char *>(base), n_bytes);
    GGML_ASSERT(was_pinned && "no range was pinned with this address and size");
    pinned().n_bytes -= n_bytes;
    trace_now(SIMDEV_KIND_UNPIN, base, n_bytes, false);
}

} // namespace simdev
