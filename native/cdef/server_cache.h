// Declarations of native/shim/server_cache.h for cffi; the compiler compares them with that header. Meanings are told there.

typedef struct pyggml_checkpoints  pyggml_checkpoints;
typedef struct pyggml_prompt_cache pyggml_prompt_cache;

typedef struct pyggml_checkpoint_info {
    int64_t n_tokens;
    int32_t pos_min;
    int32_t pos_max;
    int32_t id_task;
    size_t  size;
} pyggml_checkpoint_info;

int     pyggml_checkpoints_new(pyggml_checkpoints ** out, pyggml_error * err);
void    pyggml_checkpoints_free(pyggml_checkpoints * list);
int32_t pyggml_checkpoints_count(const pyggml_checkpoints * list);

void    pyggml_checkpoints_get_info(const pyggml_checkpoints * list, int32_t i, pyggml_checkpoint_info * out);
void    pyggml_checkpoints_erase(pyggml_checkpoints * list, int32_t i);

int     pyggml_checkpoints_restore(const pyggml_checkpoints * list, int32_t i, pyggml_server * server,
                                              int32_t seq_id, int32_t * restored, pyggml_error * err);

int     pyggml_checkpoints_add(pyggml_checkpoints * list, pyggml_server * server, int32_t seq_id,
                                          pyggml_checkpoint_info * about, pyggml_error * err);

int     pyggml_checkpoints_write(const pyggml_checkpoints * list, pyggml_bytes * out, pyggml_error * err);
int     pyggml_checkpoints_read(pyggml_checkpoints * list, const char * data, size_t size,
                                           int64_t n_tokens_max, pyggml_error * err);

int  pyggml_prompt_cache_new(const pyggml_server * server, pyggml_prompt_cache ** out, pyggml_error * err);
void pyggml_prompt_cache_free(pyggml_prompt_cache * cache);

int pyggml_prompt_cache_save(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                        int32_t * saved, pyggml_error * err);

int pyggml_prompt_cache_load(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const llama_token * wanted,
                                        int32_t n_wanted, pyggml_checkpoints * list, pyggml_bytes * out,
                                        int32_t * intact, pyggml_error * err);

void pyggml_prompt_cache_hand_out(pyggml_prompt_cache * cache);

int pyggml_prompt_cache_trim(pyggml_prompt_cache * cache, pyggml_error * err);

typedef struct pyggml_prompt_cache_size {
    int32_t n_prompts;
    int64_t n_tokens;
    size_t  n_bytes;
} pyggml_prompt_cache_size;

void pyggml_prompt_cache_get_size(const pyggml_prompt_cache * cache, pyggml_prompt_cache_size * out);

typedef struct pyggml_kept_prompt pyggml_kept_prompt;

int  pyggml_kept_prompt_begin(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                         const pyggml_checkpoints * list, size_t n_bytes, pyggml_kept_prompt ** out,
                                         pyggml_error * err);
void pyggml_kept_prompt_free(pyggml_kept_prompt * kept);

int          pyggml_kept_prompt_put(pyggml_kept_prompt * kept, int32_t i_context, const void * data,
                                               size_t size, pyggml_error * err);
const void * pyggml_kept_prompt_data(const pyggml_kept_prompt * kept, int32_t i_context);
size_t       pyggml_kept_prompt_size(const pyggml_kept_prompt * kept, int32_t i_context);

int pyggml_kept_prompt_get_tokens(const pyggml_kept_prompt * kept, pyggml_bytes * out, pyggml_error * err);
size_t pyggml_kept_prompt_checkpoints_size(const pyggml_kept_prompt * kept);
int pyggml_kept_prompt_get_checkpoints(const pyggml_kept_prompt * kept, pyggml_checkpoints * list,
                                                  pyggml_error * err);

int pyggml_prompt_cache_add(pyggml_prompt_cache * cache, pyggml_kept_prompt * kept, pyggml_error * err);

int pyggml_prompt_cache_find(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, int32_t * n_found,
                                        int32_t * n_common, pyggml_error * err);

int pyggml_prompt_cache_take(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, pyggml_kept_prompt ** out,
                                        pyggml_error * err);

int pyggml_prompt_cache_take_evicted(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out, pyggml_error * err);
int pyggml_prompt_cache_take_oldest(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out, pyggml_error * err);

int pyggml_kept_prompt_new(const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                      pyggml_kept_prompt ** out, pyggml_error * err);
int pyggml_kept_prompt_make(pyggml_kept_prompt * kept, int32_t i_context, size_t size, void ** out,
                                       pyggml_error * err);
