// Times saving and restoring one of four interleaved sequences, and prints one JSON object.
//
// Built against the C API only: run the same program with libllama before and after a patch (LD_LIBRARY_PATH), on one
// machine, one after the other. Usage: state_io_bench LABEL MODEL [N_CELLS [N_REPEATS]]; N_CELLS of each sequence.
// "comb": every fourth cell is the sequence's. "broken": irregular runs. "one_run": contiguous, the bound to beat.

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int n_sequences = 4;
constexpr int n_batch_tokens = 512;
constexpr llama_seq_id measured = 1;

std::vector<llama_seq_id> owners_of_cells(const std::string & layout, int n_cells) {
    std::vector<llama_seq_id> owners;
    std::mt19937 random(42);
    if (layout == "one_run") {
        for (llama_seq_id seq_id = 0; seq_id < n_sequences; seq_id++) {
            owners.insert(owners.end(), n_cells, seq_id);
        }
        return owners;
    }
    std::vector<int> n_left(n_sequences, n_cells);
    for (llama_seq_id next = 0; owners.size() < static_cast<size_t>(n_sequences) * n_cells;
         next = (next + 1) % n_sequences) {
        const int length = layout == "comb" ? 1 : static_cast<int>(1 + random() % 24);
        const int n_now = std::min(length, n_left[next]);
        owners.insert(owners.end(), n_now, next);
        n_left[next] -= n_now;
    }
    return owners;
}

bool fill_cells(llama_context * context, const std::vector<llama_seq_id> & owners) {
    llama_memory_clear(llama_get_memory(context), true);
    std::vector<llama_pos> position(n_sequences, 0);
    llama_batch batch = llama_batch_init(n_batch_tokens, 0, 1);
    bool decoded = true;
    for (size_t first = 0; decoded && first < owners.size(); first += n_batch_tokens) {
        batch.n_tokens = static_cast<int32_t>(std::min<size_t>(n_batch_tokens, owners.size() - first));
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            const llama_seq_id seq_id = owners[first + i];
            batch.token[i] = 1 + (first + i) % 100;
            batch.pos[i] = position[seq_id]++;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = seq_id;
            batch.logits[i] = i == batch.n_tokens - 1;
        }
        decoded = llama_decode(context, batch) == 0;
    }
    llama_batch_free(batch);
    llama_synchronize(context);
    return decoded;
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
    if (!fill_cells(context, owners_of_cells(layout, n_cells))) {
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
    ggml_backend_load_all();
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 99;
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model(llama_model_load_from_file(argv[2], model_params),
                                                                    llama_model_free);
    if (!model) {
        std::fprintf(stderr, "%s: not loaded\n", argv[2]);
        return 1;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (n_sequences * n_cells + 255) / 256 * 256;
    params.n_batch = params.n_ubatch = n_batch_tokens;
    params.n_seq_max = n_sequences;
    params.kv_unified = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model.get(), params), llama_free);
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
