// Pinning of the caller's memory in place.
#include <csignal>
#include <unistd.h>

#include "simulated.h"

static bool pin(const Simdev & sim, void * base, size_t n_bytes) {
    return sim.function<bool(void *, size_t)>("ggml_backend_host_memory_pin")(base, n_bytes);
}

static void unpin(const Simdev & sim, void * base, size_t n_bytes) {
    sim.function<void(void *, size_t)>("ggml_backend_host_memory_unpin")(base, n_bytes);
}

CASE(a_copy_from_pinned_memory_says_so_and_one_from_the_rest_does_not) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 4);
    Floats        host{ 1, 2, 3, 4 };
    set_async(stream, row, host);
    CHECK(pin(sim, host.data(), row.n_bytes()));
    set_async(stream, row, host);
    ggml_backend_synchronize(stream.get());
    unpin(sim, host.data(), row.n_bytes());
    set_async(stream, row, host);
    ggml_backend_synchronize(stream.get());
    const auto sets = sim.trace(SIMDEV_KIND_SET);
    CHECK(sets.size() == 3 && !sets[0].host_pinned && sets[1].host_pinned && !sets[2].host_pinned);
    CHECK(row.now() == host && sim.n_faults() == 0);
}

CASE(every_pin_and_unpin_is_in_the_trace_with_its_size) {
    const Simdev sim({ { "SIMDEV_PIN_FAILS_ABOVE_BYTES", "12" } });
    Floats       host(4);
    CHECK(pin(sim, host.data(), 8) && !pin(sim, host.data() + 2, 8) && pin(sim, host.data() + 2, 4));
    unpin(sim, host.data(), 8);
    CHECK(pin(sim, host.data(), 8));
    const auto pins = sim.trace(SIMDEV_KIND_PIN);
    CHECK(pins.size() == 4 && pins[0].host_pinned && !pins[1].host_pinned && pins[2].host_pinned);
    const auto unpins = sim.trace(SIMDEV_KIND_UNPIN);
    CHECK(unpins.size() == 1 && unpins[0].bytes == 8);
}

CASE(pinning_can_fail_always) {
    const Simdev sim({ { "SIMDEV_PIN_FAILS_ABOVE_BYTES", "0" } });
    Floats       host(1);
    CHECK(!pin(sim, host.data(), 1));
}

CASE(a_range_that_overlaps_a_pinned_one_or_is_empty_is_refused) {
    const Simdev sim;
    Floats       host(8);
    CHECK(pin(sim, host.data() + 2, 8));
    CHECK(!pin(sim, host.data(), 12) && !pin(sim, host.data() + 3, 16) && !pin(sim, host.data() + 2, 8));
    CHECK(!pin(sim, nullptr, 8) && !pin(sim, host.data(), 0));
    CHECK(pin(sim, host.data(), 8) && pin(sim, host.data() + 4, 16));
}

CASE(unpinning_before_a_copy_ran_is_a_fault_and_leaves_the_memory_alone) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    Floats        host{ 5 };
    CHECK(pin(sim, host.data(), 4));
    set_async(stream, row, host);
    unpin(sim, host.data(), 4);
    CHECK(host == Floats{ 5 });
    ggml_backend_synchronize(stream.get());
    CHECK(sim.n_faults() == 1);
}

CASE(two_ranges_side_by_side_take_a_copy_each) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 2);
    row.put({ 6, 7 });
    Floats host(2);
    CHECK(pin(sim, host.data(), 4) && pin(sim, host.data() + 1, 4));
    for (size_t i = 0; i < 2; ++i) {
        ggml_backend_tensor_get_async(stream.get(), row.tensor, host.data() + i, i * 4, 4);
    }
    ggml_backend_synchronize(stream.get());
    CHECK(host == (Floats{ 6, 7 }));
}

static volatile bool is_end_expected = false;

static void exit_as_expected(int) {
    _exit(is_end_expected ? 0 : 1);
}

CASE(a_copy_that_crosses_the_border_of_a_range_ends_the_process) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           row(sim, 2);
    Floats        host(2);
    CHECK(pin(sim, host.data(), 4));
    signal(SIGABRT, exit_as_expected);
    is_end_expected = true;
    get_async(stream, row, host);
    is_end_expected = false;
    CHECK(false && "the copy was taken");
}

CASE(a_device_that_cannot_pin_in_place_offers_neither_function) {
    const Simdev sim({ { "SIMDEV_PIN", "0" } });
    CHECK(ggml_backend_reg_get_proc_address(sim.reg, "ggml_backend_host_memory_pin") == nullptr);
    CHECK(ggml_backend_reg_get_proc_address(sim.reg, "ggml_backend_host_memory_unpin") == nullptr);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
