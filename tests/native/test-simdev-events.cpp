// What an event covers, and who waits for what.
#include "ggml-backend-impl.h"
#include "simulated.h"

CASE(an_event_that_was_never_recorded_holds_nobody_up) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    ggml_backend_event_synchronize(event.get());
    ggml_backend_event_wait(stream.get(), event.get());
    ggml_backend_synchronize(stream.get());
    CHECK(sim.n_pending() == 0);
}

CASE(an_event_covers_what_was_issued_before_it_and_nothing_after) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats before{ 0 }, after{ 0 };
    get_async(stream, row, before);
    ggml_backend_event_record(event.get(), stream.get());
    get_async(stream, row, after);
    ggml_backend_event_synchronize(event.get());
    CHECK(before == Floats{ 4 } && after == Floats{ 0 });
    CHECK(sim.n_pending() == 1);
    ggml_backend_synchronize(stream.get());
    CHECK(after == Floats{ 4 });
}

CASE(a_stream_that_waits_sees_what_was_written_before_the_event) {
    const Simdev  sim;
    const Backend writer = sim.stream(), reader = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 0 });
    const Floats written{ 4 };
    Floats       read{ 0 };
    set_async(writer, row, written);
    ggml_backend_event_record(event.get(), writer.get());
    ggml_backend_event_wait(reader.get(), event.get());
    get_async(reader, row, read);
    ggml_backend_synchronize(reader.get());
    CHECK(read == written);
}

CASE(a_stream_waits_for_the_recording_that_the_event_had_at_issue) {
    const Simdev  sim;
    const Backend writer = sim.stream(), reader = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    const Floats  first{ 1 }, second{ 2 };
    Floats        read{ 0 };
    set_async(writer, row, first);
    ggml_backend_event_record(event.get(), writer.get());
    ggml_backend_event_wait(reader.get(), event.get());
    set_async(writer, row, second);
    ggml_backend_event_record(event.get(), writer.get());
    get_async(reader, row, read);
    ggml_backend_synchronize(reader.get());
    CHECK(read == first);
    CHECK(sim.n_pending() == 2); // the second write and its recording
    ggml_backend_event_synchronize(event.get());
    CHECK(row.now() == second);
}

CASE(a_wait_that_comes_before_the_recording_waits_for_nothing) {
    const Simdev  sim;
    const Backend writer = sim.stream(), reader = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 7 });
    const Floats written{ 4 };
    Floats       read{ 0 };
    ggml_backend_event_wait(reader.get(), event.get());
    set_async(writer, row, written);
    ggml_backend_event_record(event.get(), writer.get());
    get_async(reader, row, read);
    ggml_backend_synchronize(reader.get());
    CHECK(read == Floats{ 7 });
    ggml_backend_synchronize(writer.get()); // what it copies from ends before it
}

CASE(an_event_outlives_its_stream_and_a_stream_its_event) {
    const Simdev sim;
    Row          row(sim, 1);
    const Floats written{ 4 };
    Event        event = sim.event();
    {
        const Backend writer = sim.stream();
        set_async(writer, row, written);
        ggml_backend_event_record(event.get(), writer.get());
    }
    const Backend reader = sim.stream();
    Floats        read{ 0 };
    ggml_backend_event_wait(reader.get(), event.get());
    event.reset();
    get_async(reader, row, read);
    ggml_backend_synchronize(reader.get());
    CHECK(read == written);
}

#if GGML_BACKEND_API_VERSION >= 3
CASE(a_query_never_blocks_and_sets_the_work_going) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    CHECK(ggml_backend_dev_supports_event_query(sim.dev()));
    CHECK(ggml_backend_event_query(event.get())); // never recorded
    get_async(stream, row, read);
    ggml_backend_event_record(event.get(), stream.get());
    CHECK(sim.n_pending() == 2);
    until([&] { return ggml_backend_event_query(event.get()); });
    CHECK(read == Floats{ 4 });
}

CASE(a_query_of_a_held_event_is_false_and_moves_nothing) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    get_async(stream, row, read);
    ggml_backend_event_record(event.get(), stream.get());
    CHECK(!ggml_backend_event_query(event.get()));
    CHECK(sim.n_pending() == 2 && read == Floats{ 0 });
    sim.release(1);
    until([&] { return ggml_backend_event_query(event.get()); });
    CHECK(read == Floats{ 4 });
}

// The stream waits for a held event, so a query that blocked would never come back.
CASE(a_query_returns_while_its_stream_is_stopped) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" } });
    const Backend other = sim.stream(), stopped = sim.stream();
    const Event   held = sim.event(), event = sim.event();
    ggml_backend_event_record(held.get(), other.get());
    sim.set("hold", 0);
    ggml_backend_event_wait(stopped.get(), held.get());
    ggml_backend_event_record(event.get(), stopped.get());
    CHECK(!ggml_backend_event_query(event.get()));
    until([&] { return sim.n_blocked() == 1; });
    CHECK(!ggml_backend_event_query(event.get()));
    sim.release(1);
    until([&] { return ggml_backend_event_query(event.get()); });
}

CASE(a_held_event_is_not_finished_even_when_its_work_is) {
    const Simdev  sim({ { "SIMDEV_HOLD", "1" }, { "SIMDEV_LATE", "0" } });
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    ggml_backend_event_record(event.get(), stream.get());
    until([&] { return sim.n_pending() == 0; });
    CHECK(!ggml_backend_event_query(event.get()));
    sim.release(1);
    CHECK(ggml_backend_event_query(event.get()));
}

CASE(a_device_without_event_query_says_so_and_ggml_blocks_instead) {
    const Simdev  sim({ { "SIMDEV_EVENT_QUERY", "0" } });
    const Backend stream = sim.stream();
    const Event   event = sim.event();
    Row           row(sim, 1);
    row.put({ 4 });
    Floats read{ 0 };
    CHECK(!ggml_backend_dev_supports_event_query(sim.dev()));
    get_async(stream, row, read);
    ggml_backend_event_record(event.get(), stream.get());
    CHECK(ggml_backend_event_query(event.get()));
    CHECK(read == Floats{ 4 });
}
#endif

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
