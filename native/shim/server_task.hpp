// Sampling for one task; internal to the shim.
#pragma once

#include "server_types.hpp"

// Samples and accepts one token from row `i_batch` of the last decode and moves the task on by it; `n_past` tokens are
// in the slot then. Fills sampled.token and sampled.stop, returns the event of a streamed task (may be empty).
// Throws what the sampler throws.
std::string pyggml_task_sample(pyggml_task & task, llama_context * ctx, int32_t i_batch, int32_t n_past,
                               pyggml_sampled & sampled);
