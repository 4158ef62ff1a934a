// What the link to the device costs, by the knobs: a call on the thread that issues, latency and bandwidth where the
// bytes move. With the knobs at their defaults nothing sleeps.
#pragma once

#include <cstdint>

namespace simdev {

// Call cost + latency + bytes / bandwidth, in nanoseconds.
uint64_t modelled_ns(uint64_t n_bytes);

// Sleeps for one call: on the thread that issues.
void charge_call();

// Sleeps for latency and bandwidth: on the thread that moves the bytes.
void charge_transfer(uint64_t n_bytes);

} // namespace simdev
