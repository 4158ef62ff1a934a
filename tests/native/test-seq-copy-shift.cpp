// A shift rewrites K in place. It comes after the copies that read or write cells, and waits for no others.
#include "seq_copy.h"

static const size_t plenty_bytes = 64 << 20;

// The next decode applies it.
static void shift(Chats & chats, llama_seq_id id) {
    llama_memory_t memory = llama_get_memory(chats.context.get());
    llama_memory_seq_rm(memory, id, 0, 2);
    llama_memory_seq_add(memory, id, 2, -1, -2);
    chats.n_pos[id] -= 2;
}

static void shift_and_decode(Twins & two, const Ids & ids) {
    two.both([&](Chats & each) {
        shift(each, 0);
        each.decode(ids);
    });
    CHECK(two.has_same_logits(ids.size()));
}

CASE(a_shift_is_applied_after_the_saves_in_flight) {
    const Simdev sim;
    Twins        two;
    issue_save(two.copy, 1, two.state.size());
    shift(two.chats, 0);
    sim.forget_trace();
    two.chats.decode({ 0 });
    CHECK(sim.n_pending() > 0); // the decode was not waited for, but what the shift had to wait for is done
    CHECK(held_by(two.copy, two.state.size()) == two.state && is_done(two.copy));
}

CASE(a_shift_is_applied_after_the_restores_in_flight) {
    const Simdev sim;
    Twins        two;
    two.give_cells_of_1_away();
    issue_restore(two.copy, 1, two.state);
    shift_and_decode(two, { 0, 1, 2 });
}

CASE(a_shift_does_not_wait_for_a_prefetch) {
    const Simdev sim;
    Twins        two(plenty_bytes);
    issue_save(two.copy, 1, two.state.size());
    llama_state_seq_copy_wait(two.copy.get());
    two.both([](Chats & each) { each.remove(1); });
    sim.set("hold", 1);
    CHECK(llama_state_seq_copy_prefetch(two.copy.get()));
    sim.set("hold", 0);
    shift_and_decode(two, { 0, 2 });
    CHECK(!is_done(two.copy));
    sim.release(SIZE_MAX);
    two.twin.restore(1, two.state);
    CHECK(llama_state_seq_copy_restore(two.copy.get(), 1, two.state.size(), 0) == two.state.size());
    two.decode({ 0, 1, 2 });
    CHECK(two.has_same_logits(3));
}

CASE(a_shift_waits_for_a_gathered_save_only_until_it_has_read_its_cells) {
    const Simdev sim;
    Twins        two(plenty_bytes);
    sim.set("hold", 1);
    issue_save(two.copy, 1, two.state.size());
    sim.set("hold", 0);
    CHECK(sim.n_held() == 2);
    sim.release(1); // the gather, but not its way to the host
    shift_and_decode(two, { 0, 1, 2 });
    CHECK(!is_done(two.copy));
    sim.release(SIZE_MAX);
    llama_state_seq_copy_wait(two.copy.get());
    CHECK(held_by(two.copy, two.state.size()) == two.state);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
