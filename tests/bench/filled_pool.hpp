// A pool of cells that four sequences share, and a model on the first device: what the measuring programs start from.
//
// Uses the C API only, so that a program can run with libllama before and after a patch.
#pragma once

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace filled_pool {

constexpr int n_sequences = 4;
constexpr int n_batch_tokens = 512;
constexpr llama_seq_id measured = 1;

using Model = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using Context = std::unique_ptr<llama_context, decltype(&llama_free)>;

inline void discard_log(ggml_log_level, const char *, void *) {}

// Null if the file is no model. Loads the backends too.
inline Model load_model(const char * path, ggml_log_callback log = discard_log) {
    ggml_backend_load_all();
    llama_backend_init();
    llama_log_set(log, nullptr);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 999;
    return Model(llama_model_load_from_file(path, params), llama_model_free);
}

// Room for n_cells of each sequence, and staging memory for copies of them.
inline llama_context_params pool_params(int n_cells, size_t n_bytes_staging = 0) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = (n_sequences * n_cells + 255) / 256 * 256;
    params.n_batch = params.n_ubatch = n_batch_tokens;
    params.n_seq_max = n_sequences;
    params.kv_unified = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.n_bytes_staging = n_bytes_staging;
    return params;
}

// Null if there is no model or no memory.
inline Context make_context(const Model & model, const llama_context_params & params) {
    return Context(model ? llama_init_from_model(model.get(), params) : nullptr, llama_free);
}

// Whose the cells are, n_cells of each sequence: the first n_contiguous of each are contiguous, the others come in turns,
// in runs of random length.
inline std::vector<llama_seq_id> owners_of_cells(int n_cells, int n_contiguous, int longest_run) {
    std::vector<llama_seq_id> owners;
    std::mt19937 random(42);
    std::vector<int> n_left(n_sequences, n_cells);
    const auto append = [&](llama_seq_id seq_id, int n) {
        n = std::min(n, n_left[seq_id]);
        owners.insert(owners.end(), n, seq_id);
        n_left[seq_id] -= n;
    };
    for (llama_seq_id seq_id = 0; seq_id < n_sequences; seq_id++) {
        append(seq_id, n_contiguous);
    }
    for (llama_seq_id next = 0; owners.size() < static_cast<size_t>(n_sequences) * n_cells; next = (next + 1) % n_sequences) {
        append(next, static_cast<int>(1 + random() % longest_run));
    }
    return owners;
}

// Clears the pool and decodes a token into each cell. False if a batch does not decode. Blocks until the device is done.
inline bool fill_cells(llama_context * context, const std::vector<llama_seq_id> & owners) {
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

}  // namespace filled_pool
