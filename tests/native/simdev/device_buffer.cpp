// Device memory: host memory that ggml may not touch. The calls of a buffer are synchronous: they move bytes at once,
// on the calling thread, past whatever streams have pending, as CUDA's do (knob `sync_drains`: after everything
// pending).
#include <cstdio>
#include <cstring>
#include <functional>

#include "device.h"
#include "knobs.h"
#include "link_cost.h"
#include "memory.h"
#include "simdev.h"
#include "stream.h"
#include "trace.h"

namespace simdev {

namespace {

struct Buffer {
    Device &  device;
    MemoryRef memory;
};

Buffer & self(ggml_backend_buffer_t buffer) {
    return *static_cast<Buffer *>(buffer->context);
}

simdev_trace_entry entry(ggml_backend_buffer_t buffer, simdev_kind kind, size_t n_bytes, const void * host) {
    simdev_trace_entry made{};
    made.device = self(buffer).device.index;
    made.kind = kind;
    made.bytes = n_bytes;
    made.n_rows = 1;
    made.modelled_ns = modelled_ns(n_bytes);
    made.host_address = reinterpret_cast<uintptr_t>(host);
    const MemoryRef memory = host != nullptr ? find_memory(host) : nullptr;
    made.host_pinned = memory != nullptr && memory->place == Place::pinned;
    return made;
}

void do_now(simdev_trace_entry made, const ggml_tensor * tensor, uint64_t n_link_bytes,
            const std::function<void()> & run) {
    if (knob(Knob::sync_drains) == 1) {
        simdev_drain();
    }
    if (tensor != nullptr) {
        snprintf(made.name, sizeof(made.name), "%s", tensor->name);
    }
    const TraceRef traced = add_trace(made);
    charge_call();
    charge_transfer(n_link_bytes);
    run();
    mark_done(*traced);
}

void free_buffer(ggml_backend_buffer_t buffer) {
    finish_graphs_that_touch(*self(buffer).memory);
    self(buffer).device.used_bytes -= buffer->size;
    const void * base = self(buffer).memory->base;
    delete &self(buffer);
    release(base);
}

void * get_base(ggml_backend_buffer_t buffer) {
    return self(buffer).memory->base;
}

char * at(const ggml_tensor * tensor, size_t offset) {
    return static_cast<char *>(tensor->data) + offset;
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, uint8_t value, size_t offset, size_t size) {
    simdev_trace_entry made = entry(buffer, SIMDEV_KIND_MEMSET, size, nullptr);
    made.offset_bytes = offset;
    do_now(made, tensor, 0, [&] { memset(at(tensor, offset), value, size); });
}

void set_2d(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset, size_t size,
            size_t n_copies, size_t stride_tensor, size_t stride_data) {
    simdev_trace_entry made = entry(buffer, SIMDEV_KIND_SET, size * n_copies, data);
    made.offset_bytes = offset;
    made.n_rows = n_copies;
    made.stride_tensor_bytes = stride_tensor;
    made.stride_host_bytes = stride_data;
    do_now(made, tensor, made.bytes, [&] {
        for (size_t i = 0; i < n_copies; ++i) {
            memcpy(at(tensor, offset + i * stride_tensor), static_cast<const char *>(data) + i * stride_data, size);
        }
    });
}

void get_2d(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, size_t offset, size_t size,
            size_t n_copies, size_t stride_tensor, size_t stride_data) {
    simdev_trace_entry made = entry(buffer, SIMDEV_KIND_GET, size * n_copies, data);
    made.offset_bytes = offset;
    made.n_rows = n_copies;
    made.stride_tensor_bytes = stride_tensor;
    made.stride_host_bytes = stride_data;
    do_now(made, tensor, made.bytes, [&] {
        for (size_t i = 0; i < n_copies; ++i) {
            memcpy(static_cast<char *>(data) + i * stride_data, at(tensor, offset + i * stride_tensor), size);
        }
    });
}

void set_1d(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    set_2d(buffer, tensor, data, offset, size, 1, 0, 0);
}

void get_1d(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    get_2d(buffer, tensor, data, offset, size, 1, 0, 0);
}

// ggml copies from and to host memory itself; what is left is device memory of simdev's.
bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    if (device_of(src) == nullptr) {
        return false;
    }
    const size_t n_bytes = ggml_nbytes(src);
    do_now(entry(buffer, SIMDEV_KIND_COPY, n_bytes, nullptr), dst, n_bytes,
           [&] { memcpy(dst->data, src->data, n_bytes); });
    return true;
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    do_now(entry(buffer, SIMDEV_KIND_CLEAR, buffer->size, nullptr), nullptr, 0,
           [&] { memset(self(buffer).memory->base, value, buffer->size); });
}

ggml_backend_buffer_i functions() {
    const bool has_2d = knob(Knob::copy_2d) == 1;
    ggml_backend_buffer_i iface{};
    iface.free_buffer   = free_buffer;
    iface.get_base      = get_base;
    iface.memset_tensor = memset_tensor;
    iface.set_tensor    = set_1d;
    iface.get_tensor    = get_1d;
    iface.set_tensor_2d = has_2d ? set_2d : nullptr;
    iface.get_tensor_2d = has_2d ? get_2d : nullptr;
    iface.cpy_tensor    = cpy_tensor;
    iface.clear         = clear;
    return iface;
}

Device & owner(ggml_backend_buffer_type_t buft) {
    return *static_cast<Device *>(buft->context);
}

const char * type_name(ggml_backend_buffer_type_t buft) {
    return owner(buft).name.c_str();
}

size_t type_max_size(ggml_backend_buffer_type_t) {
    const uint64_t most = knob(Knob::max_buffer_bytes);
    return most > 0 ? most : SIZE_MAX;
}

size_t type_alignment(ggml_backend_buffer_type_t) {
    return ALIGNMENT_BYTES;
}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    Device &     device = owner(buft);
    const size_t used = device.used_bytes.fetch_add(size) + size;
    const bool   fits = used <= knob(Knob::memory_bytes) && size <= type_max_size(buft);
    MemoryRef    memory = fits ? allocate(size, Place::device) : nullptr;
    if (memory == nullptr) {
        device.used_bytes -= size;
        fprintf(stderr,
                "simdev: %s: no room for %zu bytes, %zu are taken: raise SIMDEV_MEMORY_BYTES or SIMDEV_MAX_BUFFER_BYTES\n",
                device.name.c_str(), size, used - size);
        return nullptr;
    }
    return ggml_backend_buffer_init(buft, functions(), new Buffer{ device, std::move(memory) }, size);
}

} // namespace

ggml_backend_buffer_type make_device_buffer_type(Device & device) {
    ggml_backend_buffer_type type{};
    type.iface.get_name      = type_name;
    type.iface.alloc_buffer  = type_alloc;
    type.iface.get_alignment = type_alignment;
    type.iface.get_max_size  = type_max_size;
    // get_alloc_size and is_host stay null: ggml_nbytes, and not host memory
    type.device  = &device.ggml;
    type.context = &device;
    return type;
}

Device * device_of(const ggml_tensor * tensor) {
    const ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
    if (buffer == nullptr || buffer->buft->iface.alloc_buffer != type_alloc) {
        return nullptr;
    }
    return &owner(buffer->buft);
}

} // namespace simdev
