// Times saving and restoring one of four interleaved sequences, and prints one JSON object.
//
// Built against the C API only: run the same program with libllama before and after a patch (LD_LIBRARY_PATH), on one
// machine, one after the other. Usage: state_io_bench LABEL MODEL [N_CELLS [N_REPEATS]]; N_CELLS of each sequence.
// "comb": every fourth cell is the sequence's. "broken": irregular runs. "one_run": contiguous, the bound to beat.

#include "filled_pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using filled_pool::measured;

std::vector<llama_seq_id> owners_of_cells(const std::string & layout, int n_cells) {
    return filled_pool::owners_of_cells(n_cells, layout == "one_run" ? n_cells : 0, layout == "comb" ? 1 : 24);
}

double milliseconds_of(const std::vector<double> & sorted, double quantile) {
    return sorted[static_cast<size_t>(quantile * (sorted.size() - 1))];
}

template <typename Work>
std::vector<double> sorted_times_ms(int n_repeats, Work work) {
    std::vector<double> times;
    for (int i = 0; i < n_repeats; i++) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    return times;
}

uint64_t hash_of(const std::vector<uint8_t> & bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint8_t byte : bytes) {
        hash = (hash ^ byte) * 0x100000001b3u;
    }
    return hash;
}

// The first save and restore are shown apart: they also pay for what is set up once.
bool measure(llama_context * context, const std::string & layout, int n_cells, int n_repeats, bool last) {
    if (!filled_pool::fill_cells(context, owners_of_cells(layout, n_cells))) {
        std::fprintf(stderr, "%s: %d cells do not decode: pass fewer\n", layout.c_str(), n_cells);
        return false;
    }
    std::vector<uint8_t> state(llama_state_seq_get_size_ext(context, measured, 0));
    bool complete = true;
    const auto save = [&] {
        complete &= llama_state_seq_get_data_ext(context, state.data(), state.size(), measured, 0) == state.size();
    };
    const auto restore = [&] {
        complete &= llama_state_seq_set_data_ext(context, state.data(), state.size(), measured, 0) == state.size();
    };
    const auto first_save = sorted_times_ms(1, save);
    const auto saves = sorted_times_ms(n_repeats, save);
    const auto before = state;
    const auto first_restore = sorted_times_ms(1, restore);
    const auto restores = sorted_times_ms(n_repeats, restore);
    save();
    std::printf("\"%s\": {\"bytes\": %zu, \"hash\": \"%016lx\", \"same_after_restore\": %s,\n", layout.c_str(), state.size(),
                hash_of(state), state == before ? "true" : "false");
    std::printf("  \"save_first_ms\": %.2f, \"save_median_ms\": %.2f, \"save_worst_ms\": %.2f,\n", first_save[0],
                milliseconds_of(saves, 0.5), saves.back());
    std::printf("  \"restore_first_ms\": %.2f, \"restore_median_ms\": %.2f, \"restore_worst_ms\": %.2f}%s\n",
                first_restore[0], milliseconds_of(restores, 0.5), restores.back(), last ? "" : ",");
    return complete && state == before;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: state_io_bench LABEL MODEL [N_CELLS [N_REPEATS]]\n");
        return 2;
    }
    const int n_cells = argc > 3 ? std::atoi(argv[3]) : 1989;
    const int n_repeats = argc > 4 ? std::atoi(argv[4]) : 5;
    const auto model = filled_pool::load_model(argv[2]);
    if (!model) {
        std::fprintf(stderr, "%s: not loaded\n", argv[2]);
        return 1;
    }
    const auto params = filled_pool::pool_params(n_cells);
    const auto context = filled_pool::make_context(model, params);
    if (!context) {
        std::fprintf(stderr, "no context of %u cells\n", params.n_ctx);
        return 1;
    }
    std::printf("{\"label\": \"%s\", \"n_cells\": %d,\n", argv[1], n_cells);
    const bool complete = measure(context.get(), "comb", n_cells, n_repeats, false) &&
                          measure(context.get(), "broken", n_cells, n_repeats, false) &&
                          measure(context.get(), "one_run", n_cells, n_repeats, true);
    std::printf("}\n");
    return complete ? 0 : 1;
}
