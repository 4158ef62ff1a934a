// What it costs the thread that decodes to issue the copies of one of four sequences: for a profiler that counts
// instructions, since no GPU is needed for that. Prints milliseconds too, which mean little by comparison.
//
//   python tests/bench/qwen3_4b_shape.py --thin thin.gguf
//   export GGML_BACKEND_PATH=.../libggml-simdev.so; issue_cost fill thin.gguf state.bin
//   valgrind --tool=callgrind --collect-atstart=no --toggle-collect=llama_state_seq_copy_save issue_cost copy thin.gguf state.bin
//
// The same for llama_state_seq_get_size, llama_memory_seq_rm, llama_state_seq_copy_prefetch and _restore, and of a decode
// step, whose graph is not of interest, for 'llama_kv_cache::init_batch*', which places its tokens. "Collected" is the
// sum of N_REPEATS calls, the first of which pays for what is set up once. Valgrind knows no AVX-512: build the libraries
// with -DGGML_NATIVE=OFF. Of each sequence 1000 cells are contiguous and 989 alternate, in a pool of 8192.

#include "filled_pool.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>

namespace {

using filled_pool::measured;

constexpr int n_cells = 1989;
constexpr int n_contiguous = 1000;
constexpr int n_repeats = 2;
constexpr size_t buffer_bytes = size_t(64) << 20;

bool fill(llama_context * context, const char * path) {
    return filled_pool::fill_cells(context, filled_pool::owners_of_cells(n_cells, n_contiguous, 1)) &&
           llama_state_save_file(context, path, nullptr, 0);
}

template <typename Work>
bool timed(const char * name, Work work) {
    const auto begin = std::chrono::steady_clock::now();
    const bool worked = work();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    std::printf("%-10s %8.3f ms%s\n", name, time.count(), worked ? "" : ", FAILED");
    return worked;
}

// One token of each sequence. What is not the model's is llama_kv_cache::init_batch.
bool decode_step(llama_context * context) {
    llama_batch batch = llama_batch_init(filled_pool::n_sequences, 0, 1);
    for (llama_seq_id seq_id = 0; seq_id < filled_pool::n_sequences; seq_id++) {
        const int i = batch.n_tokens++;
        batch.token[i] = 1;
        batch.pos[i] = llama_memory_seq_pos_max(llama_get_memory(context), seq_id) + 1;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = seq_id;
        batch.logits[i] = true;
    }
    const bool decoded = llama_decode(context, batch) == 0;
    llama_batch_free(batch);
    llama_synchronize(context);
    return decoded;
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
        worked &= timed("decode", [&] { return decode_step(context); });
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
    const auto model = filled_pool::load_model(argv[2]);
    auto params = filled_pool::pool_params(n_cells, buffer_bytes);
    params.n_threads = params.n_threads_batch = 1;
    const auto context = filled_pool::make_context(model, params);
    bool worked = context != nullptr;
    if (worked && std::strcmp(argv[1], "fill") == 0) {
        worked = fill(context.get(), argv[3]);
    } else if (worked) {
        size_t n_tokens = 0;
        llama_token token = 0;
        worked = llama_state_load_file(context.get(), argv[3], &token, 1, &n_tokens) && copy_out_and_back(context.get());
    }
    return worked ? 0 : 1;
}
