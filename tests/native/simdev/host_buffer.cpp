// Pinned host memory, or what is said to be: an allocation above the knob `pageable_above_bytes` silently is
// ordinary memory, of the CPU's buffer type, as CUDA hands out when page-locking fails. Both are watched while
// operations that touch them are pending.
#include "device.h"
#include "knobs.h"
#include "memory.h"

namespace simdev {

namespace {

const char * get_name(ggml_backend_buffer_type_t) {
    return "SIM_Host";
}

size_t get_alignment(ggml_backend_buffer_type_t) {
    return ALIGNMENT_BYTES;
}

bool is_host(ggml_backend_buffer_type_t) {
    return true;
}

void free_buffer(ggml_backend_buffer_t buffer) {
    release(buffer->context);
}

ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t buft, size_t size) {
    const bool      is_pageable = size > knob(Knob::pageable_above_bytes);
    const MemoryRef memory = allocate(size, is_pageable ? Place::pageable : Place::pinned);
    if (memory == nullptr) {
        return nullptr;
    }
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(memory->base, size);
    buffer->buft = is_pageable ? ggml_backend_cpu_buffer_type() : buft;
    buffer->iface.free_buffer = free_buffer;
    return buffer;
}

ggml_backend_buffer_type make() {
    ggml_backend_buffer_type type{};
    type.iface.get_name      = get_name;
    type.iface.alloc_buffer  = alloc;
    type.iface.get_alignment = get_alignment;
    type.iface.is_host       = is_host;
    type.device              = &device(0).ggml;
    return type;
}

} // namespace

ggml_backend_buffer_type_t host_buffer_type() {
    static ggml_backend_buffer_type type = make();
    return &type;
}

} // namespace simdev
