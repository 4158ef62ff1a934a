// What the server remembers of prompts outside the slots: llama.cpp's prompt cache in host memory, and the context
// checkpoints of a slot. Engine thread only.
#pragma once

#include "server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyggml_checkpoints  pyggml_checkpoints;  // of one slot, oldest first
typedef struct pyggml_prompt_cache pyggml_prompt_cache; // whole prompts with their states and checkpoints

// -- checkpoints: the part of a sequence's state that cannot be rolled back, as it was after some of its tokens ------

typedef struct pyggml_checkpoint_info {
    int64_t n_tokens; // of the sequence, when it was made
    int32_t pos_min;
    int32_t pos_max;
    int32_t id_task;
    size_t  size;
} pyggml_checkpoint_info;

PYGGML_API int     pyggml_checkpoints_new(pyggml_checkpoints ** out, pyggml_error * err);
PYGGML_API void    pyggml_checkpoints_free(pyggml_checkpoints * list);
PYGGML_API int32_t pyggml_checkpoints_count(const pyggml_checkpoints * list);
// The i-th; i must be below the count. So for the next two.
PYGGML_API void    pyggml_checkpoints_get_info(const pyggml_checkpoints * list, int32_t i, pyggml_checkpoint_info * out);
PYGGML_API void    pyggml_checkpoints_erase(pyggml_checkpoints * list, int32_t i);
// *restored is 0 where the memory has no room for it; what the sequence holds is unknown then.
PYGGML_API int     pyggml_checkpoints_restore(const pyggml_checkpoints * list, int32_t i, pyggml_server * server,
                                              int32_t seq_id, int32_t * restored, pyggml_error * err);
// Appends one of the sequence as it is now. `about` says what to note; its size is filled in.
PYGGML_API int     pyggml_checkpoints_add(pyggml_checkpoints * list, pyggml_server * server, int32_t seq_id,
                                          pyggml_checkpoint_info * about, pyggml_error * err);

// A slot's checkpoints in its file: the target's part of each. Reading replaces the list; it raises PYGGML_E_INVALID for
// bytes that are damaged, or are not of a slot with n_tokens_max tokens, and changes nothing then.
PYGGML_API int     pyggml_checkpoints_write(const pyggml_checkpoints * list, pyggml_bytes * out, pyggml_error * err);
PYGGML_API int     pyggml_checkpoints_read(pyggml_checkpoints * list, const char * data, size_t size,
                                           int64_t n_tokens_max, pyggml_error * err);

// -- prompt cache ----------------------------------------------------------------------------------------------------

// --cache-ram must not be 0.
PYGGML_API int  pyggml_prompt_cache_new(const pyggml_server * server, pyggml_prompt_cache ** out, pyggml_error * err);
PYGGML_API void pyggml_prompt_cache_free(pyggml_prompt_cache * cache);

// Copies a sequence, its tokens and its checkpoints into the cache. *saved is 0 where it is there already or too large.
PYGGML_API int pyggml_prompt_cache_save(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                        int32_t * saved, pyggml_error * err);

// Looks for a prompt that has more in common with `wanted` than `tokens`, which the sequence holds now. If there is
// one it moves from the cache into the sequence and the list, and its tokens are in `out`, which is empty otherwise.
// *intact is 0 where its state could not be restored; what the sequence holds is unknown then.
PYGGML_API int pyggml_prompt_cache_load(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const llama_token * wanted,
                                        int32_t n_wanted, pyggml_checkpoints * list, pyggml_bytes * out,
                                        int32_t * intact, pyggml_error * err);

// From now on what the cache has no room for is handed out: see pyggml_prompt_cache_take_evicted.
PYGGML_API void pyggml_prompt_cache_hand_out(pyggml_prompt_cache * cache);

// Makes the cache obey its limits again.
PYGGML_API int pyggml_prompt_cache_trim(pyggml_prompt_cache * cache, pyggml_error * err);

typedef struct pyggml_prompt_cache_size {
    int32_t n_prompts;
    int64_t n_tokens;
    size_t  n_bytes;
} pyggml_prompt_cache_size;

PYGGML_API void pyggml_prompt_cache_get_size(const pyggml_prompt_cache * cache, pyggml_prompt_cache_size * out);

// -- prompts on their way in or out: copied asynchronously, by another thread -----------------------------------------

typedef struct pyggml_kept_prompt pyggml_kept_prompt; // tokens, checkpoints and state of a prompt that is in no cache

// A prompt that the cache should have, as yet without its state of n_bytes. *out is NULL where the cache has it already
// or where it is too large; else the cache has made room for it, as it does in a save.
PYGGML_API int  pyggml_kept_prompt_begin(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                         const pyggml_checkpoints * list, size_t n_bytes, pyggml_kept_prompt ** out,
                                         pyggml_error * err);
PYGGML_API void pyggml_kept_prompt_free(pyggml_kept_prompt * kept); // on any thread

// Its state in the target's context (0) or the draft's (1); on any thread, one at a time.
PYGGML_API int          pyggml_kept_prompt_put(pyggml_kept_prompt * kept, int32_t i_context, const void * data,
                                               size_t size, pyggml_error * err);
PYGGML_API const void * pyggml_kept_prompt_data(const pyggml_kept_prompt * kept, int32_t i_context);
PYGGML_API size_t       pyggml_kept_prompt_size(const pyggml_kept_prompt * kept, int32_t i_context);

PYGGML_API int pyggml_kept_prompt_get_tokens(const pyggml_kept_prompt * kept, pyggml_bytes * out, pyggml_error * err);
// What pyggml_checkpoints_write gives of its checkpoints has so many bytes; 0 where there are none.
PYGGML_API size_t pyggml_kept_prompt_checkpoints_size(const pyggml_kept_prompt * kept);
PYGGML_API int pyggml_kept_prompt_get_checkpoints(const pyggml_kept_prompt * kept, pyggml_checkpoints * list,
                                                  pyggml_error * err);

// Into the cache, as its newest; not where that has it by now. `kept` is good for nothing but its end afterwards.
PYGGML_API int pyggml_prompt_cache_add(pyggml_prompt_cache * cache, pyggml_kept_prompt * kept, pyggml_error * err);
// *n_found: tokens of the prompt that pyggml_prompt_cache_load would take, 0 where there is none, and *n_common of them
// those that `wanted` begins with. It stays in the cache.
PYGGML_API int pyggml_prompt_cache_find(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, int32_t * n_found,
                                        int32_t * n_common, pyggml_error * err);
// Out of the cache: the prompt that pyggml_prompt_cache_load would take. *out is NULL where there is none.
PYGGML_API int pyggml_prompt_cache_take(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, pyggml_kept_prompt ** out,
                                        pyggml_error * err);
// The oldest of those that the cache had no room for, or the oldest that it has. *out is NULL where there is none.
PYGGML_API int pyggml_prompt_cache_take_evicted(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out,
                                                pyggml_error * err);
PYGGML_API int pyggml_prompt_cache_take_oldest(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out,
                                               pyggml_error * err);

// A prompt that comes from elsewhere, as yet without its states. `make` gives each its size and says where its bytes
// go; on any thread, one at a time.
PYGGML_API int pyggml_kept_prompt_new(const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                      pyggml_kept_prompt ** out, pyggml_error * err);
PYGGML_API int pyggml_kept_prompt_make(pyggml_kept_prompt * kept, int32_t i_context, size_t size, void ** out,
                                       pyggml_error * err);

#ifdef __cplusplus
}
#endif
