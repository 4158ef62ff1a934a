// Declarations of native/shim/server.h for cffi; the compiler compares them with that header. Meanings are told there.

typedef struct pyggml_args    pyggml_args;
typedef struct pyggml_server  pyggml_server;
typedef struct pyggml_request pyggml_request;
typedef struct pyggml_task    pyggml_task;

typedef struct pyggml_bytes {
    uint8_t * data;
    size_t    size;
} pyggml_bytes;

void pyggml_bytes_free(pyggml_bytes * bytes);

typedef struct pyggml_view {
    const uint8_t * data;
    size_t          size;
} pyggml_view;

typedef struct pyggml_tokens {
    const llama_token * data;
    int32_t             n;
} pyggml_tokens;

int  pyggml_args_parse(int argc, char ** argv, pyggml_args ** out, pyggml_error * err);

int  pyggml_args_json(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
typedef bool (*llama_progress_callback)(float progress, void * user_data);

void pyggml_args_on_load_progress(pyggml_args * args, llama_progress_callback callback);
void pyggml_args_free(pyggml_args * args);

void pyggml_log(char level, const char * text);
void pyggml_log_flush(void);

int  pyggml_server_load(pyggml_args * args, size_t n_bytes_staging, int32_t n_sampling_threads, pyggml_server ** out,
                        pyggml_error * err);
void pyggml_server_free(pyggml_server * server);

struct llama_model *   pyggml_server_model(pyggml_server * server);
struct llama_context * pyggml_server_context(pyggml_server * server);
struct llama_context * pyggml_server_draft_context(pyggml_server * server);
struct llama_model *   pyggml_server_draft_model(pyggml_server * server);

typedef struct pyggml_server_info {
    int32_t n_slots;
    int32_t n_ctx;
    int32_t n_ctx_slot;
    int32_t n_batch;
    int32_t n_ubatch;
    int32_t n_swa;
    int32_t has_memory;
    int32_t kv_unified;
    int32_t can_shift;
    int32_t is_recurrent;
    int32_t is_hybrid;
    int32_t partial_rm;
    int32_t speculates;
    int32_t n_draft_max;
    int32_t ctx_shift;
    int32_t cont_batching;
    int32_t add_bos;
    float   slot_prompt_similarity;
    int32_t n_ctx_checkpoints;
    int32_t checkpoint_min_step;
    int32_t cache_ram_mib;
    int32_t is_async;
    int32_t has_media;
    int32_t cache_idle_slots;
} pyggml_server_info;

int pyggml_server_state_origin(const pyggml_server * server, pyggml_bytes * out, pyggml_error * err);
int pyggml_server_get_info(const pyggml_server * server, pyggml_server_info * out, pyggml_error * err);

enum pyggml_request_kind {
    PYGGML_REQUEST_COMPLETION     = 0,
    PYGGML_REQUEST_OAI_COMPLETION = 1,
    PYGGML_REQUEST_OAI_CHAT       = 2,
    PYGGML_REQUEST_OAI_RESPONSES  = 3,
    PYGGML_REQUEST_ANTHROPIC      = 4,
    PYGGML_REQUEST_INFILL         = 5,
    PYGGML_REQUEST_EMBEDDING      = 6,
    PYGGML_REQUEST_OAI_EMBEDDING  = 7,
    PYGGML_REQUEST_RERANK         = 8,
    PYGGML_REQUEST_TRANSCRIPTION  = 9,
};

enum pyggml_translation {
    PYGGML_TRANSLATE_TOKENIZE        = 0,
    PYGGML_TRANSLATE_DETOKENIZE      = 1,
    PYGGML_TRANSLATE_APPLY_TEMPLATE  = 2,
    PYGGML_TRANSLATE_COUNT_CHAT      = 3,
    PYGGML_TRANSLATE_COUNT_RESPONSES = 4,
    PYGGML_TRANSLATE_COUNT_ANTHROPIC = 5,
    PYGGML_TRANSLATE_SLOT_FILE       = 6,
    PYGGML_TRANSLATE_CONTROL         = 7,
    PYGGML_TRANSLATE_SET_ADAPTERS    = 8,
};

enum pyggml_description {
    PYGGML_DESCRIBE_PROPS    = 0,
    PYGGML_DESCRIBE_MODELS   = 1,
    PYGGML_DESCRIBE_ADAPTERS = 2,
};

int  pyggml_request_parse(const pyggml_server * server, int kind, const char * body, size_t size,
                                     const char * file, size_t file_size, const int32_t * is_abandoned,
                                     pyggml_request ** out, pyggml_bytes * refusal, pyggml_error * err);
void pyggml_request_free(pyggml_request * request);

typedef struct pyggml_request_info {
    int32_t n_tasks;
    int32_t stream;
    int32_t ends_with_done;
    int32_t sse_ping_interval_s;
} pyggml_request_info;

void pyggml_request_get_info(const pyggml_request * request, pyggml_request_info * out);

pyggml_task * pyggml_request_take_task(pyggml_request * request, int32_t i);

int pyggml_request_format(pyggml_request * request, int32_t i, const uint8_t * payload, size_t size,
                                     int as_stream, pyggml_bytes * out, pyggml_error * err);

int pyggml_request_format_error(const pyggml_request * request, const char * error, size_t size,
                                           pyggml_bytes * out, pyggml_error * err);

int pyggml_request_join(const pyggml_request * request, int32_t n, const char * const * results,
                                   const size_t * sizes, pyggml_bytes * out, pyggml_error * err);

int pyggml_translate(const pyggml_server * server, int translation, const char * body, size_t size,
                                const int32_t * is_abandoned, pyggml_bytes * out, pyggml_bytes * refusal,
                                pyggml_error * err);
int pyggml_describe(const pyggml_server * server, int description, pyggml_bytes * out, pyggml_error * err);

typedef struct pyggml_task_info {
    const llama_token * tokens;
    int32_t             n_tokens;
    const char *        params_json;
    const char *        completion_id;
    int32_t             id_slot;
    int32_t             i_parent;
    int32_t             n_children;
    int32_t             n_predict;
    int32_t             n_keep;
    int32_t             n_discard;
    int32_t             n_cache_reuse;
    const int32_t *     user_starts;
    int32_t             n_user_starts;
    int32_t             stream;
    int32_t             return_progress;
    int32_t             cache_prompt;
    int32_t             embeds;
    int32_t             is_whole;
    const float *       scales;
    const float *       base_scales;
    int32_t             n_scales;
    int32_t             scales_from;
} pyggml_task_info;

void pyggml_task_get_info(const pyggml_task * task, pyggml_task_info * out);
void pyggml_task_free(pyggml_task * task);

void pyggml_task_start(pyggml_task * task, int32_t id_slot, int32_t n_ctx, int32_t n_cached);

void pyggml_task_add_pause(pyggml_task * task, int64_t pause_us);

void pyggml_task_note_shift(pyggml_task * task, int32_t n_keep, int32_t n_discard);

int pyggml_task_end_reasoning(pyggml_task * task, int32_t * is_armed, pyggml_error * err);

typedef struct pyggml_task_stats {
    int64_t n_prompt_cached;
    int64_t n_prompt_processed;
    int64_t n_gen;
    int64_t n_gen_steps;
    int64_t t_prompt_us;
    int64_t t_gen_us;
    int32_t has_next_token;
    int32_t has_new_line;
    int64_t n_draft_tokens;
    int64_t n_draft_accepted;
    int64_t n_draft_verif_steps;
    const uint64_t * n_accepted_per_pos;
    int32_t n_draft_positions;
} pyggml_task_stats;

void pyggml_task_get_stats(const pyggml_task * task, pyggml_task_stats * out);

int pyggml_task_progress(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err);
int pyggml_task_final(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err);

int  pyggml_draft(pyggml_server * server, int32_t n, pyggml_task * const * tasks, const int32_t * n_max,
                  pyggml_tokens * out, pyggml_error * err);
void pyggml_task_drop_draft(pyggml_task * task);

enum pyggml_stop {
    PYGGML_STOP_NONE  = 0,
    PYGGML_STOP_EOS   = 1,
    PYGGML_STOP_WORD  = 2,
    PYGGML_STOP_LIMIT = 3,
    PYGGML_STOP_EMBEDDED = 4,
};

enum pyggml_failure {
    PYGGML_FAILED       = 1,
    PYGGML_FAILED_LIMIT = 2,
};

typedef struct pyggml_row {
    pyggml_task * task;
    int32_t       i_batch;
    int32_t       n_draft;
    int32_t       n_prompt_tokens;
    const pyggml_task * parent;
    int32_t       n_past;
    int32_t       n_pos;
} pyggml_row;

typedef struct pyggml_sampled {
    pyggml_tokens       tokens;
    pyggml_view         text;
    int32_t             stop;
    int32_t             goes_on;
    int32_t             failed;
} pyggml_sampled;

typedef struct pyggml_batch_view {
    int32_t              n_tokens;
    const llama_token *  token;
    const llama_pos *    pos;
    const llama_seq_id * seq_id;
    const int8_t *       output;
} pyggml_batch_view;

int pyggml_step_decode(pyggml_server * server, const pyggml_batch_view * batch, int32_t n_rows,
                                  const pyggml_row * rows, int32_t * decode_status, pyggml_error * err);
int pyggml_step_sample(pyggml_server * server, int32_t go_on, pyggml_sampled * out, int32_t * decode_status,
                       pyggml_error * err);
