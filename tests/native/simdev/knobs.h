// The knobs: numbers that tests set through the environment (SIMDEV_<NAME>) before the load or simdev_set after it.
// Reading is lock-free, from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace simdev {

enum class Knob {
    devices,
    memory_bytes,
    max_buffer_bytes,
    device_ids,
    async,
    events,
    event_query,
    copy_2d,
    host_buffer,
    pin,
    pin_fails_above_bytes,
    pageable_above_bytes,
    pageable_blocks,
    late,
    hold,
    sync_drains,
    waits,
    call_ns,
    latency_ns,
    bytes_per_s,
    offload_min_batch,
    count,
};

uint64_t knob(Knob which);

// False for a name that is none, or a value out of range.
bool set_knob(const std::string & name, uint64_t value);
bool get_knob(const std::string & name, uint64_t & value);

// Takes every SIMDEV_* variable. Returns what is wrong and how to mend it, empty if nothing is.
std::string read_environment();

} // namespace simdev
