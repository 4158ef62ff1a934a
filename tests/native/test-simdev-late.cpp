// Copies run as late as the order allows, so that what is freed, changed or reused too early shows in the bytes.
#include "simulated.h"

CASE(nothing_runs_until_somebody_waits_for_it) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    get_async(stream, row, read);
    CHECK(sim.n_pending() == 1 && read == Floats{ 0 });
    CHECK(sim.trace(SIMDEV_KIND_GET).at(0).done == 0);
    ggml_backend_synchronize(stream.get());
    CHECK(read == Floats{ 4 } && sim.trace(SIMDEV_KIND_GET).at(0).done > 0);
}

CASE(a_cell_that_is_reused_before_its_save_is_done_spoils_the_save) {
    const Simdev  sim;
    const Backend copies = sim.stream(), compute = sim.stream();
    Row           cell(sim, 1);
    cell.put({ 4 });
    const Floats reused{ 9 };
    Floats       saved{ 0 };
    get_async(copies, cell, saved);
    set_async(compute, cell, reused);
    ggml_backend_synchronize(compute.get());
    ggml_backend_synchronize(copies.get());
    CHECK(saved == reused);
}

CASE(a_source_that_changes_before_the_wait_is_copied_changed) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    Floats        source{ 4 };
    set_async(stream, row, source);
    source[0] = 5;
    ggml_backend_synchronize(stream.get());
    CHECK(row.now() == Floats{ 5 });
}

static void restore_from_freed_memory(const Simdev & sim) {
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    row.put({ 0 });
    {
        Row host(ggml_backend_dev_host_buffer_type(sim.dev()), 1);
        host.put({ 4 });
        ggml_backend_tensor_set_async(stream.get(), row.tensor, host.tensor->data, 0, row.n_bytes());
    }
    CHECK(sim.n_faults() == 0);
    ggml_backend_synchronize(stream.get());
    const float restored = row.now()[0];
    CHECK(restored != restored); // NaN, never the old bytes by luck
    CHECK(sim.n_faults() == 1 && sim.trace(SIMDEV_KIND_SET).back().fault == 1);
}

CASE(a_restore_from_a_freed_host_buffer_restores_rubbish) {
    restore_from_freed_memory(Simdev());
}

CASE(a_restore_from_a_freed_pageable_buffer_restores_rubbish) {
    restore_from_freed_memory(Simdev({ { "SIMDEV_PAGEABLE_ABOVE_BYTES", "0" } }));
}

CASE(a_save_into_a_freed_host_buffer_harms_nobody_and_is_counted) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    row.put({ 4 });
    {
        Row host(ggml_backend_dev_host_buffer_type(sim.dev()), 1);
        ggml_backend_tensor_get_async(stream.get(), row.tensor, host.tensor->data, 0, row.n_bytes());
    }
    ggml_backend_synchronize(stream.get());
    CHECK(sim.n_faults() == 1);
}

CASE(a_save_from_a_freed_device_buffer_saves_rubbish) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Floats        saved{ 0 };
    {
        Row row(sim, 1);
        row.put({ 4 });
        get_async(stream, row, saved);
    }
    ggml_backend_synchronize(stream.get());
    CHECK(saved[0] != saved[0]);
    CHECK(sim.n_faults() == 1);
}

CASE(freed_memory_that_nothing_waits_to_touch_is_no_fault) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    {
        Row    row(sim, 1);
        Floats read{ 0 };
        get_async(stream, row, read);
        ggml_backend_synchronize(stream.get());
    }
    CHECK(sim.n_faults() == 0);
}

CASE(fresh_device_memory_is_rubbish) {
    const Simdev sim;
    const float  fresh = Row(sim, 1).now()[0];
    CHECK(fresh != fresh);
}

CASE(an_eager_stream_runs_without_being_asked) {
    const Simdev  sim({ { "SIMDEV_LATE", "0" } });
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    get_async(stream, row, read);
    until([&] { return sim.n_pending() == 0; });
    CHECK(read == Floats{ 4 });
}

CASE(a_late_stream_can_be_made_eager) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    get_async(stream, row, read);
    CHECK(sim.n_pending() == 1);
    sim.set("late", 0);
    until([&] { return sim.n_pending() == 0; });
    CHECK(read == Floats{ 4 });
}

CASE(a_backend_that_is_freed_finishes_what_it_was_given) {
    const Simdev sim;
    Row          row(sim, 1);
    const Floats written{ 4 };
    {
        const Backend stream = sim.stream();
        set_async(stream, row, written);
    }
    CHECK(row.now() == written && sim.n_pending() == 0);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
