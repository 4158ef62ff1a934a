// Sequences that pass through staging memory: gathered there, they leave in one piece, and their cells are free at once.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "seq_copy.h"

static const uint32_t n_ubatch = 64;
static const size_t   plenty_bytes = 64 << 20;
static const size_t   n_groups = 2; // K and V of SmolLM2's 30 layers
static const size_t   n_cells = 256;

// What was issued to streams of copies since the trace was forgotten. Graphs of a model have other streams.
struct Issued {
    size_t n_sets = 0, n_gets = 0, n_graphs = 0;
};

static Issued issued(const Simdev & sim, size_t n_copy_graph_nodes) {
    Issued found;
    for (const simdev_trace_entry & entry : sim.trace(SIMDEV_KIND_GRAPH)) {
        found.n_graphs += entry.n_nodes == n_copy_graph_nodes ? 1 : 0;
    }
    for (const simdev_trace_entry & entry : sim.trace(SIMDEV_KIND_SET)) {
        found.n_sets += entry.stream != 0 ? 1 : 0;
    }
    for (const simdev_trace_entry & entry : sim.trace(SIMDEV_KIND_GET)) {
        found.n_gets += entry.stream != 0 ? 1 : 0;
    }
    return found;
}

// Four sequences in turns, or in an order that no stride describes.
static void fill(Chats & chats, bool is_regular) {
    Ids owners(200);
    std::iota(owners.begin(), owners.end(), 0);
    for (llama_seq_id & owner : owners) {
        owner %= 4;
    }
    if (!is_regular) {
        std::mt19937 random(5);
        std::shuffle(owners.begin(), owners.end(), random);
    }
    chats.decode(owners);
    llama_synchronize(chats.context.get());
}

// The K of all layers is one tensor to the graph, as is the V; they leave together, at one distance from layer to layer.
static void transfers_do_not_grow(bool is_regular) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes);
    fill(chats, is_regular);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 1)); // asks the device what it can
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    Issued save = issued(sim, n_groups);
    CHECK(save.n_graphs == 1 && save.n_sets == 1 && save.n_gets == 1);
    CHECK(held_by(copy, want.size()) == want);
    chats.remove(1);
    sim.forget_trace();
    issue_restore(copy, 1, want);
    llama_state_seq_copy_wait(copy.get());
    const Issued restore = issued(sim, n_groups);
    CHECK(restore.n_graphs == 1 && restore.n_sets == 2 && restore.n_gets == 0);
}

CASE(a_comb_of_cells_takes_two_nodes_and_one_transfer_besides_the_indices) {
    transfers_do_not_grow(true);
}

CASE(irregular_cells_take_no_more_transfers_than_a_comb) {
    transfers_do_not_grow(false);
}

// The sequence goes as soon as its save has been issued, and the others fill the pool.
static bool save_is_right_though_its_cells_are_taken(const Simdev & sim, bool is_ordered) {
    const Model model = load_model();
    Chats       chats(model, n_ubatch, plenty_bytes);
    chats.decode({ 0, 1, 2 }, 60);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    sim.set("waits", is_ordered ? 1 : 0);
    issue_save(copy, 1, want.size());
    chats.remove(1);
    chats.decode({ 0, 2 }, 60);
    CHECK(chats.logits(2).size() > 0);
    sim.set("waits", 1);
    llama_state_seq_copy_wait(copy.get());
    return held_by(copy, want.size()) == want;
}

CASE(cells_can_be_taken_as_soon_as_their_save_has_been_issued) {
    CHECK(save_is_right_though_its_cells_are_taken(Simdev(), true));
}

CASE(planted_graphs_that_do_not_wait_for_the_gather_spoil_the_save) {
    CHECK(!save_is_right_though_its_cells_are_taken(Simdev(), false));
}

// Another sequence comes back into the cells of one that has just been saved. Without the wait its scatter is first.
static bool save_is_right_though_a_restore_takes_its_cells(const Simdev & sim, bool is_ordered) {
    const Model model = load_model();
    Chats       chats(model, n_ubatch, plenty_bytes);
    chats.decode({ 0 }, 64);
    const Bytes first = chats.save(0);
    chats.remove(0);
    chats.n_pos[0] = 0;
    chats.decode({ 1 }, 64);
    chats.decode({ 2 }, static_cast<int>(n_cells) - 64);
    const Bytes want = chats.save(1);
    const Copy  saving = chats.make_copy(want.size()), restoring = chats.make_copy(first.size());
    issue_save(saving, 1, want.size());
    chats.remove(1);
    sim.set("waits", is_ordered ? 1 : 0);
    issue_restore(restoring, 0, first);
    llama_state_seq_copy_wait(restoring.get());
    sim.set("waits", 1);
    llama_state_seq_copy_wait(saving.get());
    return held_by(saving, want.size()) == want && chats.save(0) == first;
}

CASE(a_restore_comes_after_the_gathers_of_cells_that_it_takes) {
    CHECK(save_is_right_though_a_restore_takes_its_cells(Simdev(), true));
}

CASE(planted_a_restore_that_does_not_wait_for_gathers_spoils_the_save) {
    CHECK(!save_is_right_though_a_restore_takes_its_cells(Simdev(), false));
}

CASE(a_restore_that_fails_clears_no_cell_that_a_save_still_reads) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes);
    chats.decode({ 1 }, 64);
    chats.decode({ 2 }, static_cast<int>(n_cells) - 64);
    const Bytes want = chats.save(1);
    const Copy  saving = chats.make_copy(want.size()), restoring = chats.make_copy(want.size());
    issue_save(saving, 1, want.size());
    chats.remove(1);
    memcpy(llama_state_seq_copy_buf(restoring.get()), want.data(), want.size());
    CHECK(llama_state_seq_copy_restore(restoring.get(), 0, want.size() - 1, 0) == 0);
    llama_state_seq_copy_wait(saving.get());
    CHECK(held_by(saving, want.size()) == want);
}

CASE(a_prefetched_state_takes_no_cells_and_is_only_scattered) {
    const Simdev   sim;
    const Model    model = load_model();
    Chats          chats(model, n_ubatch, plenty_bytes), twin(model);
    llama_memory_t memory = llama_get_memory(chats.context.get());
    for (Chats * each : { &chats, &twin }) {
        each->decode({ 0, 1, 2 }, 20);
    }
    const Bytes want = twin.save(1);
    const Copy  copy = chats.make_copy(want.size());
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    for (Chats * each : { &chats, &twin }) {
        each->remove(1);
        each->decode({ 0, 2 }, 3);
    }
    const uint32_t n_used = llama_memory_n_cells_used(memory);
    CHECK(llama_state_seq_copy_prefetch(copy.get()));
    until([&] { return is_done(copy); });
    CHECK(llama_memory_n_cells_used(memory) == n_used);
    sim.forget_trace();
    CHECK(llama_state_seq_copy_restore(copy.get(), 1, want.size(), 0) == want.size());
    const Issued restore = issued(sim, n_groups);
    CHECK(restore.n_graphs == 1 && restore.n_sets == 1);
    twin.restore(1, want);
    for (Chats * each : { &chats, &twin }) {
        each->decode({ 1, 0, 2 });
    }
    CHECK(chats.logits(3) == twin.logits(3));
}

CASE(a_state_larger_than_the_staging_memory_goes_in_chunks_and_keeps_its_cells) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, 256 << 10);
    fill(chats, false);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(!llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    CHECK(!llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, want.size()) == want);
    CHECK(sim.trace(SIMDEV_KIND_GRAPH).size() > 1);
    CHECK(!llama_state_seq_copy_prefetch(copy.get()));
    llama_memory_clear(llama_get_memory(chats.context.get()), true);
    issue_restore(copy, 1, want);
    CHECK(chats.save(1) == want);
}

// Without flash attention V lies the other way round: a cell is one element of each of many rows, and a row of the state
// is no row of the tensor. That is not staged.
CASE(a_transposed_V_of_cells_in_turns_is_copied_channel_by_channel_and_stays_right) {
    const size_t n_layers = 30, n_channels = 192;
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes, LLAMA_FLASH_ATTN_TYPE_DISABLED);
    fill(chats, true);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(!llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    // a 2-D copy for each channel
    const size_t n_gets = issued(sim, n_groups).n_gets;
    CHECK(n_gets >= n_layers * (n_channels + 1) && n_gets < 2 * n_layers * (n_channels + 1));
    CHECK(held_by(copy, want.size()) == want);
    llama_memory_clear(llama_get_memory(chats.context.get()), true);
    CHECK(!llama_state_seq_copy_prefetch(copy.get()));
    issue_restore(copy, 1, want);
    CHECK(chats.save(1) == want);
}

// 50 such cells would take 150,000 transfers, each issued by the thread that decodes.
CASE(a_transposed_V_of_irregular_cells_is_refused_before_anything_is_issued) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes, LLAMA_FLASH_ATTN_TYPE_DISABLED);
    fill(chats, false);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    sim.forget_trace();
    CHECK(llama_state_seq_copy_save(copy.get(), 1, want.size(), 0) == 0 && is_done(copy));
    CHECK(llama_state_seq_copy_state_size(copy.get()) == 0 && issued(sim, n_groups).n_gets == 0);
    CHECK(chats.save(1) == want);
}

// Which cells a restore gets is known when its sequence has given up its own: a refusal would come too late to keep those.
CASE(a_transposed_V_goes_to_irregular_cells_all_the_same) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes, LLAMA_FLASH_ATTN_TYPE_DISABLED);
    fill(chats, false);
    const Bytes want = chats.save(1), neighbour = chats.save(0);
    const Copy  copy = chats.make_copy(want.size());
    issue_restore(copy, 1, want);
    CHECK(chats.save(1) == want && chats.save(0) == neighbour);
}

CASE(what_finds_no_room_in_the_staging_memory_is_copied_all_the_same) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, 4 << 20); // a half holds one of the states, not two
    chats.decode({ 0, 1, 2 }, 60);
    const Bytes first = chats.save(0), second = chats.save(1);
    CHECK(first.size() < (2 << 20) && 2 * first.size() > (2 << 20));
    const Copy a = chats.make_copy(first.size()), b = chats.make_copy(second.size());
    sim.set("hold", 1);
    issue_save(a, 0, first.size());
    sim.set("hold", 0);
    CHECK(!llama_state_seq_copy_frees_on_issue(b.get(), 1));
    issue_save(b, 1, second.size());
    llama_state_seq_copy_wait(b.get());
    CHECK(held_by(b, second.size()) == second);
    sim.release(SIZE_MAX);
    llama_state_seq_copy_wait(a.get());
    CHECK(held_by(a, first.size()) == first);
    CHECK(llama_state_seq_copy_frees_on_issue(b.get(), 1)); // the room is back
}

CASE(staging_memory_is_taken_when_the_context_is_made_and_given_back_with_it) {
    const Simdev sim;
    const Model  model = load_model();
    const auto   n_free = [&] {
        size_t free_bytes = 0, total_bytes = 0;
        ggml_backend_dev_memory(sim.dev(), &free_bytes, &total_bytes);
        return free_bytes;
    };
    const size_t n_before = n_free();
    size_t       n_without = 0;
    {
        const Chats chats(model);
        n_without = n_before - n_free();
    }
    {
        const Chats chats(model, n_ubatch, plenty_bytes);
        CHECK(n_before - n_free() == n_without + plenty_bytes);
    }
    CHECK(n_free() == n_before);
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 256;
    params.n_bytes_staging      = static_cast<size_t>(1) << 40;
    CHECK(llama_init_from_model(model.get(), params) == nullptr);
}

// What leaves a device is two runs on the host, the K and the V of its layers; no stream serves two devices.
CASE(each_of_two_devices_has_one_stream_and_one_part_of_the_staging_memory) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    const Model  model = load_model();
    size_t       n_free[2], n_after[2], n_total;
    for (size_t i = 0; i < 2; ++i) {
        ggml_backend_dev_memory(sim.dev(i), &n_free[i], &n_total);
    }
    const Chats without(model);
    for (size_t i = 0; i < 2; ++i) {
        ggml_backend_dev_memory(sim.dev(i), &n_after[i], &n_total);
        n_free[i] = n_after[i] - (n_free[i] - n_after[i]); // what a second context leaves
    }
    Chats chats(model, n_ubatch, plenty_bytes);
    for (size_t i = 0; i < 2; ++i) {
        ggml_backend_dev_memory(sim.dev(i), &n_after[i], &n_total);
        CHECK(n_free[i] - n_after[i] == plenty_bytes);
    }
    fill(chats, false);
    const Bytes want = chats.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    llama_state_seq_copy_wait(copy.get());
    chats.remove(1);
    issue_restore(copy, 1, want);
    llama_state_seq_copy_wait(copy.get());
    std::map<uint64_t, uint64_t> device_of;
    std::map<uint64_t, size_t>   n_gets, n_sets, n_graphs;
    for (const auto & [kind, counts] : { std::pair(SIMDEV_KIND_GET, &n_gets), std::pair(SIMDEV_KIND_SET, &n_sets),
                                         std::pair(SIMDEV_KIND_GRAPH, &n_graphs) }) {
        for (const simdev_trace_entry & entry : sim.trace(kind)) {
            if (entry.stream != 0) {
                ++(*counts)[entry.device];
                CHECK(device_of.emplace(entry.stream, entry.device).first->second == entry.device);
                CHECK(kind != SIMDEV_KIND_GRAPH || entry.n_nodes == n_groups);
            }
        }
    }
    CHECK(device_of.size() == 2);
    for (uint64_t device = 0; device < 2; ++device) {
        CHECK(n_gets[device] == n_groups && n_sets[device] == n_groups + 2 && n_graphs[device] == 2);
    }
}

CASE(a_model_on_two_devices_is_staged_on_both) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    const Model  model = load_model();
    Chats        chats(model, n_ubatch, plenty_bytes), twin(model);
    for (Chats * each : { &chats, &twin }) {
        fill(*each, false);
    }
    const Bytes want = twin.save(1);
    const Copy  copy = chats.make_copy(want.size());
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 1));
    sim.forget_trace();
    issue_save(copy, 1, want.size());
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 1) && !llama_state_seq_copy_frees_on_issue(copy.get(), -1));
    for (Chats * each : { &chats, &twin }) {
        each->remove(1);
        each->decode({ 0, 2, 3 }, 15);
    }
    CHECK(chats.logits(3) == twin.logits(3));
    llama_state_seq_copy_wait(copy.get());
    CHECK(held_by(copy, want.size()) == want);
    CHECK(llama_state_seq_copy_prefetch(copy.get()));
    twin.restore(1, want);
    CHECK(llama_state_seq_copy_restore(copy.get(), 1, want.size(), 0) == want.size());
    for (Chats * each : { &chats, &twin }) {
        each->decode({ 0, 1, 2 });
    }
    CHECK(chats.logits(3) == twin.logits(3));
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
