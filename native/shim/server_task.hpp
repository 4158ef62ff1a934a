// Sampling for one task; internal to the shim.
#pragma once

#include "server_types.hpp"

// Shows the prompt to the sampler, once.
void pyggml_task_prime(pyggml_task & task);

// Samples and accepts one token from row `i_batch` of the last decode and moves the task on by it; `n_past` tokens are
// in the slot then. Adds it to `result`, with the event of a streamed task. Throws what the sampler throws.
void pyggml_task_sample(pyggml_task & task, llama_context * ctx, int32_t i_batch, int32_t n_past,
                        pyggml_row_result & result);

// Moves the task on by tokens that were sampled and accepted already, until one of them ends it. They came from row
// `i_batch` of the last decode and those behind it.
void pyggml_task_take(pyggml_task & task, llama_context * ctx, int32_t i_batch, const llama_tokens & tokens,
                      int32_t n_past, pyggml_row_result & result);

// A report on the prompt, of which `n_past` tokens are in the cache.
pyggml_token_event pyggml_progress_event(const pyggml_task & task, int32_t n_past);

// Takes the embedding or the score of a prompt whose last token is `row` of the last decode. Throws where there is none.
void pyggml_task_embed(pyggml_task & task, llama_context * ctx, const pyggml_row & row, llama_seq_id seq_id);
// The end of such a task.
std::string pyggml_embedding_payload(const pyggml_task & task);
// Whether its prompt must be decoded in one batch: no memory, or a pooling that looks at all tokens.
bool pyggml_task_is_whole(const pyggml_task & task);
