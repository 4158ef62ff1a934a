// Events that are held until they are released, from another thread than the one that waits.
#include <atomic>

#include "simulated.h"

CASE(who_waits_for_a_held_event_goes_on_when_another_thread_releases_it) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    get_async(stream, row, read);
    ggml_backend_event_record(event.get(), stream.get());
    CHECK(sim.n_held() == 1);
    std::thread waiting([&] { ggml_backend_event_synchronize(event.get()); });
    until([&] { return sim.n_blocked() == 1; });
    CHECK(sim.n_pending() == 2 && read == Floats{ 0 }); // what leads to a held event is not even begun
    sim.release(1);
    waiting.join();
    CHECK(read == Floats{ 4 } && sim.n_held() == 0);
}

CASE(a_held_restore_stops_who_waits_for_the_results) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend copies = sim.stream(), compute = sim.stream();
    const Event   event = sim.event();
    Row           cells(sim, 1);
    cells.put({ 0 });
    const Floats      state{ 4 };
    Floats            logits{ 0 };
    std::atomic<bool> has_logits{ false };
    set_async(copies, cells, state);
    ggml_backend_event_record(event.get(), copies.get());
    ggml_backend_event_wait(compute.get(), event.get());
    get_async(compute, cells, logits);
    std::thread waiting([&] {
        ggml_backend_synchronize(compute.get());
        has_logits = true;
    });
    until([&] { return sim.n_blocked() == 1; });
    CHECK(!has_logits);
    sim.release(SIZE_MAX);
    waiting.join();
    CHECK(logits == state);
}

CASE(a_held_save_stops_no_other_stream) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend copies = sim.stream(), compute = sim.stream();
    const Event   fence = sim.event(), saved_event = sim.event();
    Row           cells(sim, 1), others(sim, 1);
    cells.put({ 4 });
    others.put({ 0 });
    const Floats next{ 5 };
    Floats       saved{ 0 }, logits{ 0 };
    ggml_backend_event_record(fence.get(), compute.get());
    ggml_backend_event_wait(copies.get(), fence.get());
    get_async(copies, cells, saved);
    ggml_backend_event_record(saved_event.get(), copies.get());
    set_async(compute, others, next);
    get_async(compute, others, logits);
    ggml_backend_synchronize(compute.get()); // passes its own held fence
    CHECK(logits == next && saved == Floats{ 0 });
    sim.release(SIZE_MAX);
    ggml_backend_event_synchronize(saved_event.get());
    CHECK(saved == Floats{ 4 });
}

CASE(held_events_are_released_oldest_first) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend stream = sim.stream();
    const Event   first = sim.event(), second = sim.event();
    ggml_backend_event_record(first.get(), stream.get());
    ggml_backend_event_record(second.get(), stream.get());
    CHECK(sim.n_held() == 2);
    sim.release(1);
    ggml_backend_event_synchronize(first.get());
    CHECK(sim.n_held() == 1);
    sim.release(1);
    ggml_backend_event_synchronize(second.get());
    CHECK(sim.n_held() == 0);
}

CASE(only_events_recorded_while_the_knob_is_set_are_held) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Event   before = sim.event(), during = sim.event(), after = sim.event();
    ggml_backend_event_record(before.get(), stream.get());
    sim.set("hold", 1);
    ggml_backend_event_record(during.get(), stream.get());
    sim.set("hold", 0);
    ggml_backend_event_record(after.get(), stream.get());
    ggml_backend_event_synchronize(before.get());
    ggml_backend_event_synchronize(after.get());
    CHECK(sim.n_held() == 1);
    sim.release(1);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
