// Pinned host memory, and allocations that only claim to be.
#include "simulated.h"

static ggml_backend_buffer_type_t host_type(const Simdev & sim) {
    return ggml_backend_dev_host_buffer_type(sim.dev());
}

static bool is_pinned(const Simdev & sim, const Row & host) {
    return ggml_backend_buffer_get_type(host.buffer.get()) == host_type(sim);
}

// Saves one row into `host` and returns what the trace says of it.
static bool trace_says_pinned(const Simdev & sim, Row & host) {
    const Backend stream = sim.stream();
    Row           row(sim, ggml_nelements(host.tensor));
    ggml_backend_tensor_get_async(stream.get(), row.tensor, host.tensor->data, 0, row.n_bytes());
    ggml_backend_synchronize(stream.get());
    return sim.trace(SIMDEV_KIND_GET).back().host_pinned == 1;
}

CASE(host_buffers_are_pinned_aligned_and_host_to_ggml) {
    const Simdev sim;
    Row          host(host_type(sim), 16);
    CHECK(is_pinned(sim, host) && trace_says_pinned(sim, host));
    CHECK(ggml_backend_buffer_is_host(host.buffer.get()));
    CHECK(ggml_backend_buft_get_alignment(host_type(sim)) == 64);
    CHECK(reinterpret_cast<uintptr_t>(host.tensor->data) % 64 == 0);
}

CASE(every_allocation_can_silently_be_pageable) {
    const Simdev sim({ { "SIMDEV_PAGEABLE_ABOVE_BYTES", "0" } });
    Row          host(host_type(sim), 1);
    CHECK(!is_pinned(sim, host) && !trace_says_pinned(sim, host));
    CHECK(ggml_backend_buffer_is_host(host.buffer.get()));
}

CASE(allocations_above_a_size_can_silently_be_pageable) {
    const Simdev sim({ { "SIMDEV_PAGEABLE_ABOVE_BYTES", "4096" } });
    Row          small(host_type(sim), 1024), large(host_type(sim), 1025);
    CHECK(is_pinned(sim, small) && trace_says_pinned(sim, small));
    CHECK(!is_pinned(sim, large) && !trace_says_pinned(sim, large));
}

CASE(a_copy_into_pageable_memory_can_block_as_it_does_with_cuda) {
    const Simdev  sim({ { "SIMDEV_PAGEABLE_BLOCKS", "1" } });
    const Backend stream = sim.stream();
    Row           row(sim, 1), pinned(host_type(sim), 1);
    row.put({ 4 });
    ggml_backend_tensor_get_async(stream.get(), row.tensor, pinned.tensor->data, 0, row.n_bytes());
    CHECK(sim.n_pending() == 1);
    Floats pageable{ 0 };
    get_async(stream, row, pageable);
    CHECK(pageable == Floats{ 4 } && sim.n_pending() == 0);
}

CASE(a_device_without_host_buffers_offers_none) {
    const Simdev           sim({ { "SIMDEV_HOST_BUFFER", "0" } });
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(sim.dev(), &props);
    CHECK(host_type(sim) == nullptr && !props.caps.host_buffer);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
