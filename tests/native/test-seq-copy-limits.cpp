// Where nothing can be copied asynchronously there is no copy object, memory that is not pinned is called so, and
// whatever is freed with a copy in flight waits for it.
#include "seq_copy.h"

static std::string last_warning;

static bool has_no_copy(const Simdev & sim, const char * reason, int n_gpu_layers = 99) {
    llama_log_set(
        [](ggml_log_level level, const char * text, void *) {
            if (level == GGML_LOG_LEVEL_WARN && strstr(text, "asynchronously") != nullptr) {
                last_warning += text;
            }
        },
        nullptr);
    const Model model = load_model(n_gpu_layers);
    Chats       chats(model);
    CHECK(llama_state_seq_copy_init(chats.context.get()) == nullptr);
    const std::string said = last_warning;
    CHECK(said.find(reason) != std::string::npos);
    CHECK(llama_state_seq_copy_init(chats.context.get()) == nullptr && last_warning == said); // it is said once
    sim.forget_trace();
    chats.decode({ 0, 1, 2 }, 4);
    CHECK(!sim.trace(SIMDEV_KIND_GRAPH).empty());
    return sim.trace(SIMDEV_KIND_RECORD).empty(); // no fences for nobody
}

CASE(a_device_without_event_query_gives_no_copy) {
    const Simdev sim({ { "SIMDEV_EVENT_QUERY", "0" } });
    CHECK(has_no_copy(sim, "event query"));
}

CASE(a_device_without_events_gives_no_copy) {
    const Simdev sim({ { "SIMDEV_EVENTS", "0" } });
    CHECK(has_no_copy(sim, "has no events"));
}

CASE(a_device_that_does_not_copy_asynchronously_gives_no_copy) {
    const Simdev sim({ { "SIMDEV_ASYNC", "0" } });
    CHECK(has_no_copy(sim, "does not copy asynchronously"));
}

CASE(a_model_that_is_only_partly_on_the_device_gives_no_copy) {
    const Simdev sim;
    CHECK(has_no_copy(sim, "CPU", 10));
}

CASE(a_model_on_two_devices_is_copied_by_a_stream_on_each) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    const Model  model = load_model();
    Chats        chats(model), twin(model);
    for (Chats * each : { &chats, &twin }) {
        each->decode({ 0, 1, 2 }, 8);
    }
    const Bytes want = twin.save(1);
    const Copy  copy = chats.make_copy(want.size());
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, want.size()) == want);
    bool is_used[2] = { false, false };
    for (const simdev_trace_entry & entry : sim.trace(SIMDEV_KIND_GET)) {
        CHECK(entry.host_pinned == 1);
        is_used[entry.device] = is_used[entry.device] || entry.stream != 0;
    }
    CHECK(is_used[0] && is_used[1]);
    for (Chats * each : { &chats, &twin }) {
        each->remove(1);
    }
    twin.restore(1, want);
    issue_restore(copy, 1, want);
    for (Chats * each : { &chats, &twin }) {
        each->decode({ 0, 1, 2 });
    }
    CHECK(chats.logits(3) == twin.logits(3));
}

CASE(memory_is_called_pinned_only_if_it_is) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    const Copy   copy = chats.make_copy();
    CHECK(llama_state_seq_copy_buf_can_pin(copy.get()) && !llama_state_seq_copy_buf_is_pinned(copy.get()));
    sim.set("pageable_above_bytes", 1 << 20);
    CHECK(llama_state_seq_copy_buf_resize(copy.get(), 1 << 20)); // a probe
    CHECK(llama_state_seq_copy_buf_is_pinned(copy.get()));
    CHECK(llama_state_seq_copy_buf_resize(copy.get(), 4 << 20)); // the size it takes
    CHECK(!llama_state_seq_copy_buf_is_pinned(copy.get()));
    llama_state_seq_copy_buf_free(copy.get());
    sim.set("pageable_above_bytes", 0);
    CHECK(llama_state_seq_copy_buf_resize(copy.get(), 1 << 20));
    CHECK(!llama_state_seq_copy_buf_is_pinned(copy.get()) && llama_state_seq_copy_buf_can_pin(copy.get()));
}

CASE(a_device_that_pins_nothing_is_served_from_pageable_memory) {
    const Simdev sim({ { "SIMDEV_HOST_BUFFER", "0" } });
    const Model  model = load_model();
    Chats        chats(model);
    chats.decode({ 0, 1, 2 }, 8);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(!llama_state_seq_copy_buf_can_pin(copy.get()) && !llama_state_seq_copy_buf_is_pinned(copy.get()));
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, want.size()) == want);
}

CASE(a_buffer_that_is_freed_or_a_copy_that_is_freed_in_flight_is_waited_for) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    chats.decode({ 0, 1, 2 }, 8);
    const size_t n_bytes = chats.save(1).size();
    {
        const Copy copy = chats.make_copy(n_bytes);
        issue_save(copy, 1, n_bytes);
        CHECK(sim.n_pending() > 0);
        llama_state_seq_copy_buf_free(copy.get());
        CHECK(is_done(copy));
        CHECK(llama_state_seq_copy_buf_resize(copy.get(), n_bytes));
        issue_save(copy, 1, n_bytes);
    }
    CHECK(sim.n_faults() == 0);
}

CASE(a_context_that_is_freed_with_copies_in_flight_waits_for_them) {
    const Simdev sim;
    const Model  model = load_model();
    Bytes        want;
    Copy         saving, restoring;
    {
        Chats chats(model);
        chats.decode({ 0, 1, 2 }, 8);
        want = chats.save(1);
        saving = chats.make_copy(want.size());
        restoring = chats.make_copy(want.size());
        issue_save(saving, 1, want.size());
        issue_restore(restoring, 3, want);
    }
    CHECK(sim.n_faults() == 0 && sim.n_pending() == 0);
    CHECK(is_done(saving) && is_done(restoring) && held_by(saving, want.size()) == want);
    CHECK(llama_state_seq_copy_save(saving.get(), 1, want.size(), 0) == 0);
    saving.reset();
    restoring.reset();
    CHECK(sim.n_faults() == 0);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
