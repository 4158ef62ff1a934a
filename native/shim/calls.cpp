// Model, context, decode, outputs and memory: see calls.h. States are in calls_state.cpp, text and samplers in
// calls_text.cpp and calls_sampler.cpp.
#include "calls.h"

#include "call_guard.hpp"

#include <atomic>
#include <new>

struct pyggml_abort_flag {
    std::atomic<bool> raised { false };
};

namespace {

bool abort_is_raised(void * flag) {
    return static_cast<pyggml_abort_flag *>(flag)->raised.load(std::memory_order_relaxed);
}

int give_row(pyggml_error * err, float * row, float ** out, const char * what) {
    if (row == nullptr) {
        return pyggml_fail_with_log(err, PYGGML_E_INVALID, what);
    }
    *out = row;
    return PYGGML_OK;
}

} // namespace

extern "C" {

int32_t pyggml_calls_version(void) {
    return PYGGML_CALLS_VERSION;
}

size_t pyggml_sizeof_model_params(void) {
    return sizeof(llama_model_params);
}

size_t pyggml_sizeof_context_params(void) {
    return sizeof(llama_context_params);
}

int pyggml_backend_init(pyggml_error * err) {
    return pyggml_call(err, [&] { llama_backend_init(); });
}

int pyggml_model_load(const char * path, const struct llama_model_params * params, struct llama_model ** out,
                      pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *out = llama_model_load_from_file(path, *params);
        return *out ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, std::string("cannot load model ") + path);
    });
}

int pyggml_context_init(struct llama_model * model, const struct llama_context_params * params,
                        struct llama_context ** out, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *out = llama_init_from_model(model, *params);
        return *out ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "cannot create the context");
    });
}

struct pyggml_abort_flag * pyggml_abort_flag_new(struct llama_context * ctx) {
    auto * flag = new (std::nothrow) pyggml_abort_flag();
    if (flag != nullptr) {
        llama_set_abort_callback(ctx, abort_is_raised, flag);
    }
    return flag;
}

void pyggml_abort_flag_set(struct pyggml_abort_flag * flag, bool raised) {
    flag->raised.store(raised, std::memory_order_relaxed);
}

void pyggml_abort_flag_free(struct pyggml_abort_flag * flag) {
    delete flag;
}

int pyggml_decode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *result = llama_decode(ctx, *batch);
        return *result == 0 ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "decode failed");
    });
}

int pyggml_encode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *result = llama_encode(ctx, *batch);
        return *result == 0 ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "encode failed");
    });
}

int pyggml_synchronize(struct llama_context * ctx, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_synchronize(ctx); });
}

int pyggml_logits(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err) {
    return pyggml_call(err, [&] {
        return give_row(err, llama_get_logits_ith(ctx, i), out, "no logits at this index");
    });
}

int pyggml_embeddings(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err) {
    return pyggml_call(err, [&] {
        return give_row(err, llama_get_embeddings_ith(ctx, i), out, "no embeddings at this index");
    });
}

int pyggml_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id, float ** out, pyggml_error * err) {
    return pyggml_call(err, [&] {
        return give_row(err, llama_get_embeddings_seq(ctx, seq_id), out, "no pooled embeddings of this sequence");
    });
}

int pyggml_memory_clear(llama_memory_t mem, bool data, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_memory_clear(mem, data); });
}

int pyggml_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, bool * removed,
                         pyggml_error * err) {
    return pyggml_call(err, [&] { *removed = llama_memory_seq_rm(mem, seq_id, p0, p1); });
}

int pyggml_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1,
                         pyggml_error * err) {
    return pyggml_call(err, [&] { llama_memory_seq_cp(mem, src, dst, p0, p1); });
}

int pyggml_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_memory_seq_keep(mem, seq_id); });
}

int pyggml_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos delta,
                          pyggml_error * err) {
    return pyggml_call(err, [&] { llama_memory_seq_add(mem, seq_id, p0, p1, delta); });
}

int pyggml_memory_seq_div(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, int32_t divisor,
                          pyggml_error * err) {
    return pyggml_call(err, [&] { llama_memory_seq_div(mem, seq_id, p0, p1, divisor); });
}

int pyggml_memory_seq_pos(llama_memory_t mem, llama_seq_id seq_id, llama_pos * pos_min, llama_pos * pos_max,
                          pyggml_error * err) {
    return pyggml_call(err, [&] {
        *pos_min = llama_memory_seq_pos_min(mem, seq_id);
        *pos_max = llama_memory_seq_pos_max(mem, seq_id);
    });
}

int pyggml_memory_n_cells_used(llama_memory_t mem, uint32_t * n_cells, pyggml_error * err) {
    return pyggml_call(err, [&] { *n_cells = llama_memory_n_cells_used(mem); });
}

int pyggml_memory_seq_n_cells(llama_memory_t mem, llama_seq_id seq_id, bool owned_only, uint32_t * n_cells,
                              pyggml_error * err) {
    return pyggml_call(err, [&] { *n_cells = llama_memory_seq_n_cells(mem, seq_id, owned_only); });
}

} // extern "C"
