// Order within a stream, between streams, against synchronous calls; the shape of transfers.
#include <algorithm>

#include "simulated.h"

CASE(transfers_of_one_stream_run_in_the_order_of_issue) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 2);
    const Floats  first{ 1, 2 }, second{ 3, 4 };
    Floats        after_first(2), after_second(2);
    set_async(stream, row, first);
    get_async(stream, row, after_first);
    set_async(stream, row, second);
    get_async(stream, row, after_second);
    ggml_backend_synchronize(stream.get());
    CHECK(after_first == first && after_second == second);
    uint64_t last = 0;
    for (const simdev_kind kind : { SIMDEV_KIND_SET, SIMDEV_KIND_GET }) {
        for (const simdev_trace_entry & entry : sim.trace(kind)) {
            CHECK(entry.done == entry.id);
            last = std::max(last, entry.done);
        }
    }
    CHECK(last == 4);
}

CASE(a_stream_does_not_wait_for_another) {
    const Simdev  sim;
    const Backend idle = sim.stream(), busy = sim.stream();
    Row           row(sim, 2);
    const Floats  written{ 1, 2 };
    Floats        read(2);
    row.put({ 5, 6 });
    set_async(idle, row, written);
    get_async(busy, row, read);
    ggml_backend_synchronize(busy.get());
    CHECK((read == Floats{ 5, 6 }));
    CHECK(sim.n_pending() == 1);
    ggml_backend_synchronize(idle.get());
    CHECK(row.now() == written);
}

CASE(a_synchronous_call_passes_what_is_pending) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 2);
    const Floats  late{ 1, 2 };
    set_async(stream, row, late);
    row.put({ 3, 4 });
    CHECK((row.now() == Floats{ 3, 4 }));
    ggml_backend_synchronize(stream.get());
    CHECK(row.now() == late);
}

CASE(a_synchronous_call_comes_after_all_that_is_pending_where_that_is_wanted) {
    const Simdev  sim({ { "SIMDEV_SYNC_DRAINS", "1" } });
    const Backend stream = sim.stream();
    Row           row(sim, 2);
    const Floats  early{ 1, 2 };
    set_async(stream, row, early);
    CHECK(row.now() == early);
    set_async(stream, row, early);
    ggml_backend_buffer_clear(row.buffer.get(), 0);
    CHECK((row.now() == Floats{ 0, 0 }));
    set_async(stream, row, early);
    ggml_backend_tensor_memset(row.tensor, 0, 0, sizeof(float));
    CHECK((row.now() == Floats{ 0, 2 }));
    CHECK(sim.n_pending() == 0);
}

// Rows of two floats: from every other row of three in a tensor, into rows of two in host memory with a gap of one.
static void move_two_of_three(const Simdev & sim, Row & row, bool is_async) {
    const size_t  size = 2 * sizeof(float), stride_tensor = 4 * sizeof(float), stride_host = 3 * sizeof(float);
    const Backend stream = sim.stream();
    const Floats  from{ 1, 2, -1, 3, 4, -1 };
    Floats        to(6, 9);
    row.put(Floats(8, 7));
    sim.forget_trace();
    if (is_async) {
        ggml_backend_tensor_set_2d_async(stream.get(), row.tensor, from.data(), sizeof(float), size, 2, stride_tensor,
                                         stride_host);
        ggml_backend_tensor_get_2d_async(stream.get(), row.tensor, to.data(), 0, size, 2, stride_tensor, stride_host);
        ggml_backend_synchronize(stream.get());
    } else {
        ggml_backend_tensor_set_2d(row.tensor, from.data(), sizeof(float), size, 2, stride_tensor, stride_host);
        ggml_backend_tensor_get_2d(row.tensor, to.data(), 0, size, 2, stride_tensor, stride_host);
    }
    CHECK((to == Floats{ 7, 1, 9, 7, 3, 9 }));
}

static void check_shape(const simdev_trace_entry & entry, bool is_async) {
    CHECK(entry.bytes == 4 * sizeof(float) && entry.n_rows == 2);
    CHECK(entry.stride_tensor_bytes == 4 * sizeof(float) && entry.stride_host_bytes == 3 * sizeof(float));
    CHECK((entry.stream != 0) == is_async);
    CHECK(strcmp(entry.name, "cells") == 0);
}

CASE(a_2d_transfer_moves_its_rows_and_is_one_entry) {
    const Simdev sim;
    Row          row(sim, 8, "cells");
    for (const bool is_async : { false, true }) {
        move_two_of_three(sim, row, is_async);
        CHECK(sim.trace(SIMDEV_KIND_SET).size() == 1 && sim.trace(SIMDEV_KIND_GET).size() == 1);
        CHECK(sim.trace(SIMDEV_KIND_SET)[0].offset_bytes == sizeof(float));
        check_shape(sim.trace(SIMDEV_KIND_SET)[0], is_async);
        check_shape(sim.trace(SIMDEV_KIND_GET)[0], is_async);
        CHECK((row.now() == Floats{ 7, 1, 2, 7, 7, 3, 4, 7 }));
    }
}

CASE(without_2d_every_row_is_an_entry) {
    const Simdev sim({ { "SIMDEV_COPY_2D", "0" } });
    Row          row(sim, 8, "cells");
    for (const bool is_async : { false, true }) {
        move_two_of_three(sim, row, is_async);
        CHECK(sim.trace(SIMDEV_KIND_SET).size() == 2 && sim.trace(SIMDEV_KIND_GET).size() == 2);
        CHECK(sim.trace(SIMDEV_KIND_SET)[0].n_rows == 1);
        CHECK((row.now() == Floats{ 7, 1, 2, 7, 7, 3, 4, 7 }));
    }
}

CASE(the_cost_of_the_link_is_in_the_trace) {
    const Simdev  sim(
        { { "SIMDEV_CALL_NS", "7" }, { "SIMDEV_LATENCY_NS", "20" }, { "SIMDEV_BYTES_PER_S", "1000000000" } });
    const Backend stream = sim.stream();
    Row           row(sim, 25);
    row.put(Floats(25, 1));
    Floats        read(25);
    get_async(stream, row, read);
    ggml_backend_synchronize(stream.get());
    CHECK(sim.trace(SIMDEV_KIND_SET).at(0).modelled_ns == 7 + 20 + 100);
    CHECK(sim.trace(SIMDEV_KIND_GET).at(0).modelled_ns == 7 + 20 + 100);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
