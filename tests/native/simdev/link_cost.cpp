#include "link_cost.h"

#include <chrono>
#include <thread>

#include "knobs.h"

namespace simdev {

namespace {

uint64_t transfer_ns(uint64_t n_bytes) {
    const uint64_t bytes_per_s = knob(Knob::bytes_per_s);
    const double   bytes = static_cast<double>(n_bytes);
    const double   moving_ns = bytes_per_s > 0 ? 1e9 * bytes / static_cast<double>(bytes_per_s) : 0;
    return knob(Knob::latency_ns) + static_cast<uint64_t>(moving_ns);
}

void sleep_ns(uint64_t duration_ns) {
    if (duration_ns > 0) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
    }
}

} // namespace

uint64_t modelled_ns(uint64_t n_bytes) {
    return knob(Knob::call_ns) + transfer_ns(n_bytes);
}

void charge_call() {
    sleep_ns(knob(Knob::call_ns));
}

void charge_transfer(uint64_t n_bytes) {
    sleep_ns(transfer_ns(n_bytes));
}

} // namespace simdev
