// What it costs the thread that decodes to issue the copies of one of four sequences: for a profiler that counts
// instructions, since no GPU is needed for that. Prints milliseconds too, which mean little beside it.
//
//   python tests/bench/qwen3_4b_shape.py --thin thin.gguf
//   export GGML_BACKEND_PATH=.../libggml-simdev.so; issue_cost fill thin.gguf state.bin
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect=llama_state_seq_copy_save issue_cost copy thin.gguf state.bin
//
// The same for llama_state_seq_get_size, llama_memory_seq_rm, llama_state_seq_copy_prefetch and _restore; "Collected" is the
// sum of N_REPEATS calls, the first of which pays for what is set up once. Valgrind knows no AVX-512: build the libraries
// with -DGGML_NATIVE=OFF. Of each sequence 1000 cells are contiguous and 989 alternate, in a pool of 8192.

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int n_sequences = 4;
constexpr int n_batch_tokens = 512;
constexpr int n_repeats = 2;
constexpr size_t buffer_bytes = size_t(64) << 20;
constexpr llama_seq_id measured = 1;

bool fill_cells(llama_context * context) {
    std::vector<llama_seq_id> owners;
    for (llama_seq_id seq_id = 0; seq_id < n_sequences; seq_id++) {
        owners.insert(owners.end(), 1000, seq_id);
    }
    for (int i = 0; i < 989 * n_sequences; i++) {
        owners.push_back(i % n_sequences);
    }
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

template <typename Work>
bool timed(const char * name, Work work) {
    const auto begin = std::chrono::steady_clock::now();
    const bool worked = work();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::printf("%-10s %8.3f ms%s\n", name, time.count(), worked ? "" : ", FAILED");
    return worked;
}

bool copy_out_and_back(llama_context * context) {
    llama_state_seq_copy * copy = llama_state_seq_copy_init(context);
    bool worked = copy != nullptr && llama_state_seq_copy_buf_resize(copy, buffer_bytes);
    size_t size = 0;
    for (int i = 0; worked && i < n_repeats; i++) {
        worked &= timed("get_size", [&] { return (size = llama_state_seq_get_size(context, measured)) > 0; });
        worked &= timed("save", [&] { return llama_state_seq_copy_save(copy, measured, buffer_bytes, 0) == size; });
        llama_state_seq_copy_wait(copy);
        worked &= timed("seq_rm", [&] { return llama_memory_seq_rm(llama_get_memory(context), measured, -1, -1); });
        worked &= timed("prefetch", [&] { return llama_state_seq_copy_prefetch(copy); });
        llama_state_seq_copy_wait(copy);
        worked &= timed("restore", [&] { return llama_state_seq_copy_restore(copy, measured, size, 0) == size; });
        llama_state_seq_copy_wait(copy);
    }
    llama_state_seq_copy_free(copy);
    return worked;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: issue_cost fill|copy MODEL STATE\n");
        return 2;
    }
    ggml_backend_load_all();
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 99;
    llama_model * model = llama_model_load_from_file(argv[2], model_params);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 8192;
    params.n_batch = params.n_ubatch = n_batch_tokens;
    params.n_seq_max = n_sequences;
    params.n_threads = params.n_threads_batch = 1;
    params.kv_unified = true;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.n_bytes_staging = buffer_bytes;
    llama_context * context = model != nullptr ? llama_init_from_model(model, params) : nullptr;
    bool worked = context != nullptr;
    if (worked && std::strcmp(argv[1], "fill") == 0) {
        worked = fill_cells(context) && llama_state_save_file(context, argv[3], nullptr, 0);
    } else if (worked) {
        size_t n_tokens = 0;
        llama_token token = 0;
        worked = llama_state_load_file(context, argv[3], &token, 1, &n_tokens) && copy_out_and_back(context);
    }
    llama_free(context);
    llama_model_free(model);
    return worked ? 0 : 1;
}
