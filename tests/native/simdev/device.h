// The devices: what ggml sees of each, and how full its memory is.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "ggml-backend-impl.h"

namespace simdev {

struct Device {
    size_t                   index = 0;
    std::string              name;
    std::string              description;
    std::string              id;
    ggml_backend_device      ggml{};
    ggml_backend_buffer_type buffer_type{};
    std::atomic<size_t>      used_bytes{ 0 };
};

constexpr size_t MAX_DEVICES = 4;

// Makes the devices on the first call; `reg` is what ggml gets to know.
void     make_devices(ggml_backend_reg_t reg);
size_t   n_devices();
Device & device(size_t index);

// Takes the knobs that decide which functions a device offers. Not while backends of it exist.
void offer_functions();

// The CPU's device, on which graphs run. Null when ggml has none.
ggml_backend_dev_t cpu_device();

// device_buffer.cpp
ggml_backend_buffer_type make_device_buffer_type(Device & device);
// Null for a buffer that is not simdev's own device memory.
Device *                 device_of(const ggml_tensor * tensor);

// host_buffer.cpp
ggml_backend_buffer_type_t host_buffer_type();

// backend.cpp
ggml_backend_t make_backend(Device & device);
bool           is_simdev(ggml_backend_t backend);

} // namespace simdev
