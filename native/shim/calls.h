// One noexcept entry point for each llama.h function that can throw, or that reports failure only in its log.
//
// Each returns PYGGML_OK or an error code (error.h); the message carries the ERROR lines that llama.cpp logged on this
// thread during the call, since that is where it says why. The caller has checked what the tree would assert, except
// where a comment says that it is checked here. A context, and what is taken from it, belongs to one thread at a time.
#pragma once

#include "error.h"
#include "log.h"

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// Compared at import with what the cffi module was compiled against.
#define PYGGML_CALLS_VERSION 1
PYGGML_API int32_t pyggml_calls_version(void);
PYGGML_API size_t  pyggml_sizeof_model_params(void);
PYGGML_API size_t  pyggml_sizeof_context_params(void);

// After pyggml_backends_load: llama_backend_init searches other folders where no backend is registered.
PYGGML_API int pyggml_backend_init(pyggml_error * err);

PYGGML_API int pyggml_model_load(const char * path, const struct llama_model_params * params,
                                 struct llama_model ** out, pyggml_error * err);
PYGGML_API int pyggml_context_init(struct llama_model * model, const struct llama_context_params * params,
                                   struct llama_context ** out, pyggml_error * err);

// A flag that any thread may raise; llama.cpp polls it while it computes on the CPU.
struct pyggml_abort_flag;
PYGGML_API struct pyggml_abort_flag * pyggml_abort_flag_new(struct llama_context * ctx); // NULL: out of memory
PYGGML_API void pyggml_abort_flag_set(struct pyggml_abort_flag * flag, bool raised);
PYGGML_API void pyggml_abort_flag_free(struct pyggml_abort_flag * flag);                 // after llama_free(ctx)

// `result` is what llama_decode / llama_encode returned: 0, 1 (no room), 2 (aborted), -1 (invalid), < -1 (failed).
PYGGML_API int pyggml_decode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result,
                             pyggml_error * err);
PYGGML_API int pyggml_encode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result,
                             pyggml_error * err);
PYGGML_API int pyggml_synchronize(struct llama_context * ctx, pyggml_error * err);

// Rows inside the context's output buffer.
PYGGML_API int pyggml_logits(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err);
PYGGML_API int pyggml_embeddings(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err);
PYGGML_API int pyggml_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id, float ** out,
                                     pyggml_error * err);

PYGGML_API int pyggml_memory_clear(llama_memory_t mem, bool data, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                                    bool * removed, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1,
                                    pyggml_error * err);
PYGGML_API int pyggml_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                                     llama_pos delta, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_div(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                                     int32_t divisor, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_pos(llama_memory_t mem, llama_seq_id seq_id, llama_pos * pos_min, llama_pos * pos_max,
                                     pyggml_error * err);
PYGGML_API int pyggml_memory_n_cells_used(llama_memory_t mem, uint32_t * n_cells, pyggml_error * err);
PYGGML_API int pyggml_memory_seq_n_cells(llama_memory_t mem, llama_seq_id seq_id, bool owned_only, uint32_t * n_cells,
                                         pyggml_error * err);

// Sizes in bytes. A size of 0 from llama.cpp is an error here.
PYGGML_API int pyggml_state_size(struct llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags,
                                 size_t * size, pyggml_error * err);
PYGGML_API int pyggml_state_get(struct llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq_id,
                                llama_state_seq_flags flags, size_t * written, pyggml_error * err);
// `no_room`: the state is fine but there are too few free cells.
PYGGML_API int pyggml_state_set(struct llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq_id,
                                llama_state_seq_flags flags, size_t * n_read, bool * no_room, pyggml_error * err);
PYGGML_API int pyggml_state_save_file(struct llama_context * ctx, const char * path, llama_seq_id seq_id,
                                      const llama_token * tokens, size_t n_tokens, size_t * written,
                                      pyggml_error * err);

// `n`: tokens or bytes needed; negative when the buffer was too small (-n are needed).
PYGGML_API int pyggml_tokenize(const struct llama_vocab * vocab, const char * text, int32_t n_bytes,
                               llama_token * tokens, int32_t n_tokens_max, bool add_special, bool parse_special,
                               int32_t * n, pyggml_error * err);
PYGGML_API int pyggml_detokenize(const struct llama_vocab * vocab, const llama_token * tokens, int32_t n_tokens,
                                 char * text, int32_t n_bytes_max, bool remove_special, bool unparse_special,
                                 int32_t * n, pyggml_error * err);
PYGGML_API int pyggml_token_to_piece(const struct llama_vocab * vocab, llama_token token, char * text,
                                     int32_t n_bytes_max, bool special, int32_t * n, pyggml_error * err);
PYGGML_API int pyggml_chat_apply_template(const char * tmpl, const struct llama_chat_message * messages,
                                          size_t n_messages, bool add_assistant, char * text, int32_t n_bytes_max,
                                          int32_t * n, pyggml_error * err);

PYGGML_API int pyggml_sampler_chain(struct llama_sampler ** out, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_greedy(struct llama_sampler * chain, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_dist(struct llama_sampler * chain, uint32_t seed, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_temp(struct llama_sampler * chain, float temperature, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_top_k(struct llama_sampler * chain, int32_t k, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_top_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_min_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_penalties(struct llama_sampler * chain, int32_t n_vocab, int32_t last_n,
                                            float repeat, float frequency, float presence, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_grammar(struct llama_sampler * chain, const struct llama_vocab * vocab,
                                          const char * grammar, const char * root, pyggml_error * err);
PYGGML_API int pyggml_sampler_add_logit_bias(struct llama_sampler * chain, int32_t n_vocab, int32_t n,
                                             const llama_logit_bias * bias, pyggml_error * err);
PYGGML_API int pyggml_sampler_clone(const struct llama_sampler * chain, struct llama_sampler ** out,
                                    pyggml_error * err);
PYGGML_API int pyggml_sampler_reset(struct llama_sampler * chain, pyggml_error * err);
// Both check here what a grammar would abort on: a token that it does not allow is PYGGML_E_INVALID, nothing changes.
PYGGML_API int pyggml_sampler_accept(struct llama_sampler * chain, llama_token token, pyggml_error * err);
PYGGML_API int pyggml_sampler_sample(struct llama_sampler * chain, struct llama_context * ctx, int32_t i,
                                     llama_token * token, pyggml_error * err);

#ifdef __cplusplus
}
#endif
