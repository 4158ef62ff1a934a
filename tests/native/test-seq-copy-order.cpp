// Copies of sequences and graphs are ordered on the device, and the host waits for neither. With a plant for each order:
// without it the same bytes are wrong.
#include <algorithm>

#include "seq_copy.h"

static const size_t n_one_device = 1;

CASE(the_others_are_decoded_while_a_save_is_held) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    chats.decode({ 0, 1, 2 }, 8);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    sim.set("hold", 1);
    issue_save(copy, 1, want.size());
    sim.set("hold", 0);
    for (int i = 0; i < 5; ++i) {
        chats.decode({ 0, 2 });
        CHECK(chats.logits(2).size() > 0 && !is_done(copy));
    }
    CHECK(sim.n_held() == n_one_device);
    sim.release(SIZE_MAX);
    llama_state_seq_copy_wait(copy.get());
    CHECK(is_done(copy) && held_by(copy, want.size()) == want);
}

CASE(the_others_are_decoded_while_a_restore_is_held) {
    const Simdev sim;
    Twins        two;
    two.give_cells_of_1_away();
    sim.set("hold", 1);
    issue_restore(two.copy, 1, two.state);
    sim.set("hold", 0);
    for (int i = 0; i < 5; ++i) {
        two.decode({ 0, 2 });
        CHECK(two.has_same_logits(2) && !is_done(two.copy));
    }
    CHECK(sim.n_held() == n_one_device);
    sim.release(SIZE_MAX);
    two.decode({ 0, 1, 2 });
    CHECK(two.has_same_logits(3));
}

CASE(while_a_copy_is_in_flight_its_object_and_its_sequence_take_no_other) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    chats.decode({ 0, 1, 2 }, 8);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size()), other = chats.make_copy(want.size());
    sim.set("hold", 1);
    issue_save(copy, 1, want.size());
    sim.set("hold", 0);
    CHECK(llama_state_seq_copy_save(copy.get(), 0, want.size(), 0) == 0);
    CHECK(llama_state_seq_copy_restore(copy.get(), 3, want.size(), 0) == 0);
    CHECK(llama_state_seq_copy_save(other.get(), 1, want.size(), 0) == 0);
    CHECK(llama_state_seq_copy_restore(other.get(), 1, want.size(), 0) == 0);
    CHECK(!llama_state_seq_copy_buf_resize(copy.get(), 2 * want.size()));
    CHECK(llama_memory_seq_pos_max(llama_get_memory(chats.context.get()), 1) == 7);
    issue_save(other, 0, want.size());
    sim.release(SIZE_MAX);
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, want.size()) == want);
}

CASE(two_restores_issued_in_one_pass_do_not_wait_for_each_other) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    chats.decode({ 0, 1, 2 }, 8);
    const Bytes first = chats.save(0), second = chats.save(1);
    const Copy  a = chats.make_copy(first.size()), b = chats.make_copy(second.size());
    chats.remove(0);
    chats.remove(1);
    chats.decode({ 2 });
    sim.set("hold", 1);
    issue_restore(a, 0, first);
    sim.set("hold", 0);
    issue_restore(b, 1, second);
    until([&] { return is_done(b); });
    CHECK(!is_done(a) && sim.n_held() == n_one_device);
    sim.release(SIZE_MAX);
    chats.decode({ 0, 1, 2 });
    until([&] { return is_done(a); });
}

// Saves right after a decode that nobody waited for.
static bool first_save_is_right(const Simdev & sim, bool is_ordered) {
    const Model model = load_model();
    Chats       chats(model), twin(model);
    chats.decode({ 0, 1, 2 }, 8);
    twin.decode({ 0, 1, 2 }, 8);
    const Bytes want = twin.save(1);
    sim.set("waits", is_ordered ? 1 : 0);
    const Copy copy = chats.make_copy(want.size());
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    return held_by(copy, want.size()) == want;
}

CASE(the_first_save_comes_after_the_last_decode) {
    CHECK(first_save_is_right(Simdev(), true));
}

CASE(planted_without_a_fence_the_first_save_is_wrong) {
    CHECK(!first_save_is_right(Simdev(), false));
}

// Decodes right after a restore that nobody waited for.
static bool decode_after_restore_is_right(const Simdev & sim, bool is_ordered) {
    Twins two;
    two.give_cells_of_1_away();
    sim.set("waits", is_ordered ? 1 : 0);
    issue_restore(two.copy, 1, two.state);
    two.decode({ 1 });
    const bool is_right = two.has_same_logits(1);
    sim.set("waits", 1);
    llama_state_seq_copy_wait(two.copy.get());
    return is_right;
}

CASE(a_restored_sequence_can_be_decoded_at_once) {
    CHECK(decode_after_restore_is_right(Simdev(), true));
}

CASE(planted_without_the_wait_after_a_restore_the_next_decode_is_wrong) {
    CHECK(!decode_after_restore_is_right(Simdev(), false));
}

CASE(what_shares_the_cells_of_a_restored_sequence_can_be_decoded_at_once) {
    const Simdev sim;
    Twins        two;
    two.give_cells_of_1_away();
    issue_restore(two.copy, 1, two.state);
    two.both([](Chats & each) {
        llama_memory_seq_cp(llama_get_memory(each.context.get()), 1, 3, -1, -1);
        each.n_pos[3] = each.n_pos[1];
        each.decode({ 3 });
    });
    CHECK(two.has_same_logits(1));
}

// The cells of a save that is held belong to others at once.
static bool save_of_removed_cells_is_right(const Simdev & sim, bool is_ordered) {
    const Model model = load_model();
    Chats       chats(model);
    chats.decode({ 0, 1, 2 }, 60);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    issue_save(copy, 1, want.size());
    sim.set("waits", is_ordered ? 1 : 0);
    chats.remove(1);
    chats.decode({ 0, 2 }, 37); // fills the pool
    CHECK(chats.logits(2).size() > 0);
    sim.set("waits", 1);
    llama_state_seq_copy_wait(copy.get());
    return held_by(copy, want.size()) == want;
}

CASE(what_gets_the_cells_of_a_save_in_flight_comes_after_it) {
    CHECK(save_of_removed_cells_is_right(Simdev(), true));
}

CASE(planted_without_the_wait_what_gets_the_cells_of_a_save_spoils_it) {
    CHECK(!save_of_removed_cells_is_right(Simdev(), false));
}

// Saves what shares the cells of a restore that is held, with no decode between.
static bool save_of_shared_cells_is_right(const Simdev & sim, bool is_ordered) {
    Twins two;
    two.give_cells_of_1_away();
    sim.set("hold", 1);
    issue_restore(two.copy, 1, two.state);
    sim.set("hold", 0);
    sim.set("waits", is_ordered ? 1 : 0);
    two.both([](Chats & each) { llama_memory_seq_cp(llama_get_memory(each.context.get()), 1, 3, -1, -1); });
    const Bytes want = two.twin.save(3);
    const Copy  copy = two.chats.make_copy(want.size());
    issue_save(copy, 3, want.size());
    sim.release(SIZE_MAX);
    llama_state_seq_copy_wait(copy.get());
    sim.set("waits", 1);
    llama_state_seq_copy_wait(two.copy.get());
    return held_by(copy, want.size()) == want;
}

CASE(what_shares_the_cells_of_a_restored_sequence_can_be_saved_at_once) {
    CHECK(save_of_shared_cells_is_right(Simdev(), true));
}

CASE(planted_without_the_wait_the_save_of_shared_cells_is_wrong) {
    CHECK(!save_of_shared_cells_is_right(Simdev(), false));
}

// Recorded on the streams of graphs since the trace was forgotten; a copy records on its own stream, of another number.
static size_t n_fences(const Simdev & sim) {
    const auto graphs = sim.trace(SIMDEV_KIND_GRAPH);
    const auto records = sim.trace(SIMDEV_KIND_RECORD);
    CHECK(!graphs.empty());
    return static_cast<size_t>(std::count_if(records.begin(), records.end(), [&](const simdev_trace_entry & record) {
        return record.stream == graphs.front().stream;
    }));
}

CASE(a_decode_records_one_fence_whatever_the_number_of_copies_and_none_without) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model);
    const auto   n_in_one_decode = [&] {
        sim.forget_trace();
        chats.decode({ 0, 1, 2 });
        return n_fences(sim);
    };
    CHECK(n_in_one_decode() == 0);
    {
        const Copy first = chats.make_copy();
        CHECK(n_in_one_decode() == n_one_device);
        const Copy second = chats.make_copy(), third = chats.make_copy();
        CHECK(n_in_one_decode() == n_one_device);
    }
    CHECK(n_in_one_decode() == 0);
}

CASE(a_decode_that_fails_half_way_records_its_fence_too) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, 8), twin(model, 8);
    chats.decode({ 0, 1, 2 }, 8);
    const Copy copy = chats.make_copy(1 << 20);
    int        n_calls_left = INT32_MAX;
    llama_set_abort_callback(
        chats.context.get(), [](void * left) { return --*static_cast<int *>(left) < 0; }, &n_calls_left);
    sim.forget_trace();
    chats.decode({ 2 }, 8);
    n_calls_left = INT32_MAX - n_calls_left; // what one part of a batch asks: the second part fails
    const size_t n_before = sim.trace(SIMDEV_KIND_GRAPH).size();
    CHECK(chats.try_decode({ 0, 1 }, 8) == 2);
    const auto graphs = sim.trace(SIMDEV_KIND_GRAPH);
    CHECK(graphs.size() > n_before);
    CHECK(sim.trace(SIMDEV_KIND_RECORD).back().id > graphs.back().id);
    const size_t n_bytes = llama_state_seq_copy_save(copy.get(), 0, 1 << 20, 0);
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, n_bytes) == chats.save(0));
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
