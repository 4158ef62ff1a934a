// What the files of the prompt cache share. Internal to the shim.
#pragma once

#include "server_cache.h"

#include "server_types.hpp"

#include <list>

struct pyggml_checkpoints {
    std::list<common_prompt_checkpoint> items;
};

using pyggml_cached_prompts = std::list<server_prompt_cache_state>;

struct pyggml_prompt_cache {
    server_prompt_cache   cache;
    bool                  hands_out = false; // what it has no room for goes to `evicted`, oldest first
    pyggml_cached_prompts evicted{};
};

// Makes room for a prompt of n_bytes, as server_prompt_cache::alloc does: those that it begins with go to `obsolete`,
// and so do the oldest, or else to `evicted`. False, with nothing changed, where the cache has it or it is too large.
bool pyggml_make_room(pyggml_prompt_cache & cache, const server_tokens & tokens, size_t n_bytes,
                      pyggml_cached_prompts & obsolete);
// How many bytes pyggml_checkpoints_write gives; 0 for none.
size_t pyggml_checkpoints_size(const std::list<common_prompt_checkpoint> & items);
// As server_prompt_cache::update, which frees what goes.
void pyggml_trim(pyggml_prompt_cache & cache);
