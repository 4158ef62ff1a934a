// What the cases share: simdev, loaded with chosen knobs, and owners for what ggml hands out.
//
// GGML_BACKEND_PATH names the library. Knobs are set before the load, as a user sets them.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "case.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "simdev.h"

template <auto function> struct Freed {
    template <typename T> void operator()(T * pointer) const { function(pointer); }
};

using Backend = std::unique_ptr<ggml_backend, Freed<ggml_backend_free>>;
using Buffer  = std::unique_ptr<ggml_backend_buffer, Freed<ggml_backend_buffer_free>>;
using Event   = std::unique_ptr<ggml_backend_event, Freed<ggml_backend_event_free>>;
using Context = std::unique_ptr<ggml_context, Freed<ggml_free>>;
using Floats  = std::vector<float>;

class Simdev {
public:
    using Knobs = std::initializer_list<std::pair<const char *, const char *>>;

    explicit Simdev(Knobs knobs = {}) {
        for (const auto & [name, value] : knobs) {
            setenv(name, value, 1);
        }
        const char * path = getenv("GGML_BACKEND_PATH");
        CHECK(path != nullptr && "GGML_BACKEND_PATH names no library");
        reg = ggml_backend_load(path);
        CHECK(reg != nullptr);
    }

    ggml_backend_dev_t dev(size_t i = 0) const { return ggml_backend_reg_dev_get(reg, i); }
    Backend            stream(size_t i = 0) const { return Backend(ggml_backend_dev_init(dev(i), nullptr)); }
    Event              event(size_t i = 0) const { return Event(ggml_backend_event_new(dev(i))); }

    template <typename Function> Function * function(const char * name) const {
        auto * found = reinterpret_cast<Function *>(ggml_backend_reg_get_proc_address(reg, name));
        CHECK(found != nullptr);
        return found;
    }

    void set(const char * knob, uint64_t value) const {
        CHECK(function<decltype(simdev_set)>("simdev_set")(knob, value));
    }
    size_t n_pending() const { return function<decltype(simdev_n_pending)>("simdev_n_pending")(); }
    size_t n_held() const { return function<decltype(simdev_n_held)>("simdev_n_held")(); }
    size_t n_blocked() const { return function<decltype(simdev_n_blocked)>("simdev_n_blocked")(); }
    size_t n_faults() const { return function<decltype(simdev_n_faults)>("simdev_n_faults")(); }
    void   release(size_t n) const { function<decltype(simdev_release)>("simdev_release")(n); }
    void   forget_trace() const { function<decltype(simdev_trace_clear)>("simdev_trace_clear")(); }

    // The entries of one kind, in the order of issue.
    std::vector<simdev_trace_entry> trace(simdev_kind kind) const {
        std::vector<simdev_trace_entry> found;
        simdev_trace_entry              entry;
        for (size_t i = 0; function<decltype(simdev_trace_get)>("simdev_trace_get")(i, &entry); ++i) {
            if (entry.kind == kind) {
                found.push_back(entry);
            }
        }
        return found;
    }

    ggml_backend_reg_t reg = nullptr;
};

// A named row of floats in a device's memory, or in a buffer type that is given.
struct Row {
    Row(ggml_backend_buffer_type_t type, int64_t n, const char * name = "row") {
        context.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
        tensor = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, n);
        ggml_set_name(tensor, name);
        buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
        CHECK(buffer != nullptr);
    }
    Row(const Simdev & sim, int64_t n, const char * name = "row", size_t device = 0)
        : Row(ggml_backend_dev_buffer_type(sim.dev(device)), n, name) {}

    size_t n_bytes() const { return ggml_nbytes(tensor); }

    // At once, past what is pending.
    void   put(const Floats & values) {
        ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(float));
    }
    Floats now() const {
        Floats values(static_cast<size_t>(ggml_nelements(tensor)));
        ggml_backend_tensor_get(tensor, values.data(), 0, n_bytes());
        return values;
    }

    Context       context;
    Buffer        buffer;
    ggml_tensor * tensor = nullptr;
};

inline void set_async(const Backend & stream, Row & row, const Floats & values) {
    ggml_backend_tensor_set_async(stream.get(), row.tensor, values.data(), 0, values.size() * sizeof(float));
}

inline void get_async(const Backend & stream, const Row & row, Floats & values) {
    ggml_backend_tensor_get_async(stream.get(), row.tensor, values.data(), 0, values.size() * sizeof(float));
}

// Spins: for what another thread is bound to do. The test's own limit ends it if that never happens.
template <typename Condition> void until(Condition condition) {
    while (!condition()) {
        std::this_thread::yield();
    }
}
