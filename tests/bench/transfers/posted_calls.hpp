// What libllama posts to devices between two moments: this program's own definitions of ggml's asynchronous calls come
// before those of the library (link with -rdynamic), note the time and pass the call on. Each thread counts its own: a
// simulated device makes such calls on its thread too.
#pragma once

#include <ggml-backend.h>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace posted {

using clock = std::chrono::steady_clock;

struct Calls {
    int n_graphs = 0;
    int n_copies = 0;
    size_t n_bytes = 0;
    clock::time_point first, last;

    // From the first call to the end of the last one. 0 without any.
    double milliseconds() const {
        return n_graphs + n_copies == 0 ? 0 : std::chrono::duration<double, std::milli>(last - first).count();
    }
};

inline thread_local Calls calls;

template <typename F, typename... Args>
auto pass_on(const char * name, F *, size_t n_bytes, Args... args) {
    static F * const original = reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
    const auto now = clock::now();
    calls.first = calls.n_graphs + calls.n_copies == 0 ? now : calls.first;
    calls.n_bytes += n_bytes;
    struct Ends {
        ~Ends() { calls.last = clock::now(); }
    } ends;
    return original(args...);
}

}  // namespace posted

extern "C" {

void ggml_backend_tensor_set_async(ggml_backend_t backend, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    posted::pass_on("ggml_backend_tensor_set_async", ggml_backend_tensor_set_async, size, backend, tensor, data, offset, size);
    posted::calls.n_copies++;
}

void ggml_backend_tensor_get_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    posted::pass_on("ggml_backend_tensor_get_async", ggml_backend_tensor_get_async, size, backend, tensor, data, offset, size);
    posted::calls.n_copies++;
}

void ggml_backend_tensor_set_2d_async(ggml_backend_t backend, ggml_tensor * tensor, const void * data, size_t offset, size_t size,
                                      size_t n_copies, size_t stride_tensor, size_t stride_data) {
    posted::pass_on("ggml_backend_tensor_set_2d_async", ggml_backend_tensor_set_2d_async, size * n_copies, backend, tensor, data,
                    offset, size, n_copies, stride_tensor, stride_data);
    posted::calls.n_copies++;
}

void ggml_backend_tensor_get_2d_async(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size,
                                      size_t n_copies, size_t stride_tensor, size_t stride_data) {
    posted::pass_on("ggml_backend_tensor_get_2d_async", ggml_backend_tensor_get_2d_async, size * n_copies, backend, tensor, data,
                    offset, size, n_copies, stride_tensor, stride_data);
    posted::calls.n_copies++;
}

enum ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, ggml_cgraph * graph) {
    const auto status = posted::pass_on("ggml_backend_graph_compute_async", ggml_backend_graph_compute_async, 0, backend, graph);
    posted::calls.n_graphs++;
    return status;
}

}  // extern "C"
