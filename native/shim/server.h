// The server's half of the shim: llama.cpp's own argument parser, loading, request translation, samplers and result
// formatting, behind C entry points. JSON crosses as UTF-8 bytes, tokens as arrays.
//
// Threads: `pyggml_args_*` before the engine starts; `pyggml_server_load/free`, `pyggml_step_*` and `pyggml_task_*` on
// the engine thread; `pyggml_request_*`, `pyggml_translate` and `pyggml_describe` on any thread while the server is
// loaded, one thread at a time for one request.
#pragma once

#include "error.h"
#include "llama.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyggml_args    pyggml_args;    // a parsed command line
typedef struct pyggml_server  pyggml_server;  // a loaded model, its context and what translation needs
typedef struct pyggml_request pyggml_request; // a translated request: formatting state of each of its tasks
typedef struct pyggml_task    pyggml_task;    // one completion: sampler, generated text, counters

// Bytes owned by the receiver; release with pyggml_bytes_free.
typedef struct pyggml_bytes {
    uint8_t * data;
    size_t    size;
} pyggml_bytes;

PYGGML_API void pyggml_bytes_free(pyggml_bytes * bytes);

// Bytes and tokens that stay where they are; how long is said at each call.
typedef struct pyggml_view {
    const uint8_t * data;
    size_t          size;
} pyggml_view;

typedef struct pyggml_tokens {
    const llama_token * data;
    int32_t             n;
} pyggml_tokens;

// -- command line ----------------------------------------------------------------------------------------------------

// The parser asks for devices, so the backends must be loaded. argv[0] is the program's name. Prints usage, version and the reason of a refusal itself, as llama-server does; help
// and version end the process with status 0.
PYGGML_API int  pyggml_args_parse(int argc, char ** argv, pyggml_args ** out, pyggml_error * err);
// What the parser made of it, after the steps that llama-server does before loading: a JSON object.
PYGGML_API int  pyggml_args_json(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
// Called on the thread that loads the model, with how much of it is there; it must live for as long as `args`.
PYGGML_API void pyggml_args_on_load_progress(pyggml_args * args, llama_progress_callback callback);
PYGGML_API void pyggml_args_free(pyggml_args * args);

// One line into llama.cpp's log (stderr, --log-file, -lv): level 'E', 'W', 'I', 'T' or 'D'.
PYGGML_API void pyggml_log(char level, const char * text);
PYGGML_API void pyggml_log_flush(void);

// -- loading ---------------------------------------------------------------------------------------------------------

// n_bytes_staging: on each device, for asynchronous copies of sequences; 0 = none.
// n_sampling_threads: the calling one counts; 0 = as many as slots and processor allow.
PYGGML_API int  pyggml_server_load(pyggml_args * args, size_t n_bytes_staging, int32_t n_sampling_threads,
                                   pyggml_server ** out, pyggml_error * err);
PYGGML_API void pyggml_server_free(pyggml_server * server);

PYGGML_API struct llama_model *   pyggml_server_model(pyggml_server * server);
PYGGML_API struct llama_context * pyggml_server_context(pyggml_server * server);
// The context of the draft model; NULL where there is none, or one without cells of its own.
PYGGML_API struct llama_context * pyggml_server_draft_context(pyggml_server * server);
PYGGML_API struct llama_model *   pyggml_server_draft_model(pyggml_server * server);

// What the engine must know of the loaded model.
typedef struct pyggml_server_info {
    int32_t n_slots;
    int32_t n_ctx;         // cells of the whole pool
    int32_t n_ctx_slot;    // positions that one slot may use
    int32_t n_batch;
    int32_t n_ubatch;
    int32_t n_swa;         // 0 also with --swa-full
    int32_t has_memory;    // 0: no KV cache at all
    int32_t kv_unified;
    int32_t can_shift;
    int32_t is_recurrent;  // purely recurrent: no pool
    int32_t is_hybrid;
    int32_t partial_rm;    // a tail of a sequence can be removed
    int32_t speculates;    // speculative decoding is in force
    int32_t n_draft_max;   // the most tokens that it guesses for one slot and step
    int32_t ctx_shift;     // --context-shift in force
    int32_t cont_batching;
    int32_t add_bos;
    float   slot_prompt_similarity;
    int32_t n_ctx_checkpoints; // most checkpoints of one slot; 0 where the memory needs none
    int32_t checkpoint_min_step; // tokens between two of them
    int32_t cache_ram_mib; // -1: no limit, 0: no prompt cache
    int32_t is_async;      // a device computes the whole model, so that a decode returns before it has ended
    int32_t has_media;     // prompts may have images or sounds
    int32_t cache_idle_slots; // idle slots move to the prompt cache when a task starts
} pyggml_server_info;

// What a sequence's state depends on, as JSON: "files" are those whose content matters, "settings" the rest in words.
PYGGML_API int pyggml_server_state_origin(const pyggml_server * server, pyggml_bytes * out, pyggml_error * err);

PYGGML_API int pyggml_server_get_info(const pyggml_server * server, pyggml_server_info * out, pyggml_error * err);

// -- translation -----------------------------------------------------------------------------------------------------

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
    PYGGML_TRANSLATE_SLOT_FILE       = 6, // {"filename"} to the name and its path below --slot-save-path
    PYGGML_TRANSLATE_CONTROL         = 7, // the body of a control request to {"id"} of the completion
    PYGGML_TRANSLATE_SET_ADAPTERS    = 8, // the scales of tasks translated from now on
};

enum pyggml_description {
    PYGGML_DESCRIBE_PROPS    = 0,
    PYGGML_DESCRIBE_MODELS   = 1,
    PYGGML_DESCRIBE_ADAPTERS = 2,
};

// `file`: the sound that came with a transcription's body, or NULL.
// A refused request is no error of the call: *out stays NULL and `refusal` is llama-server's JSON error object. Refused
// too is a body that takes more time, memory or stack than an honest one of its size could. Another thread may set
// *is_abandoned (or the pointer is NULL): nobody waits for the result, so the call ends soon.
PYGGML_API int  pyggml_request_parse(const pyggml_server * server, int kind, const char * body, size_t size,
                                     const char * file, size_t file_size, const int32_t * is_abandoned,
                                     pyggml_request ** out, pyggml_bytes * refusal, pyggml_error * err);
PYGGML_API void pyggml_request_free(pyggml_request * request);

typedef struct pyggml_request_info {
    int32_t n_tasks;
    int32_t stream;
    int32_t ends_with_done;      // a stream ends with "data: [DONE]"
    int32_t sse_ping_interval_s;
} pyggml_request_info;

PYGGML_API void pyggml_request_get_info(const pyggml_request * request, pyggml_request_info * out);

// Hands the i-th task over; a second call for the same i gives NULL.
PYGGML_API pyggml_task * pyggml_request_take_task(pyggml_request * request, int32_t i);

// The payload of the i-th task's end as text: SSE events (as_stream) or a JSON value. Once per task.
PYGGML_API int pyggml_request_format(pyggml_request * request, int32_t i, const uint8_t * payload, size_t size,
                                     int as_stream, pyggml_bytes * out, pyggml_error * err);
// An error object in the middle of a stream.
PYGGML_API int pyggml_request_format_error(const pyggml_request * request, const char * error, size_t size,
                                           pyggml_bytes * out, pyggml_error * err);
// The body of a response that is not streamed, from the JSON results of all its tasks.
PYGGML_API int pyggml_request_join(const pyggml_request * request, int32_t n, const char * const * results,
                                   const size_t * sizes, pyggml_bytes * out, pyggml_error * err);

// Calls that need no task. As for a request, a refusal is no error of the call.
PYGGML_API int pyggml_translate(const pyggml_server * server, int translation, const char * body, size_t size,
                                const int32_t * is_abandoned, pyggml_bytes * out, pyggml_bytes * refusal,
                                pyggml_error * err);
PYGGML_API int pyggml_describe(const pyggml_server * server, int description, pyggml_bytes * out, pyggml_error * err);

// -- tasks -----------------------------------------------------------------------------------------------------------

typedef struct pyggml_task_info {
    const llama_token * tokens; // the prompt; valid as long as the task
    int32_t             n_tokens;
    const char *        params_json; // as /slots shows it
    const char *        completion_id; // of the API's answer, "chatcmpl-..."
    int32_t             id_slot;     // the slot that the request asks for, or -1
    int32_t             i_parent;    // the task of its request whose prompt it has too (n > 1), or -1
    int32_t             n_children;  // tasks that have this one's prompt
    int32_t             n_predict;   // -1: no limit
    int32_t             n_keep;
    int32_t             n_discard;
    int32_t             n_cache_reuse;
    const int32_t *     user_starts; // prompt positions at which a message of the user begins, ascending
    int32_t             n_user_starts;
    int32_t             stream;
    int32_t             return_progress;
    int32_t             cache_prompt;
    int32_t             embeds;   // wants an embedding or a score of its prompt, and no text
    int32_t             is_whole; // its prompt must be decoded in one batch
    const float *       scales;      // of the LoRA adapters, one each, as long as the task
    const float *       base_scales; // those in force before the token `scales_from`
    int32_t             n_scales;
    int32_t             scales_from;
} pyggml_task_info;

PYGGML_API void pyggml_task_get_info(const pyggml_task * task, pyggml_task_info * out);
PYGGML_API void pyggml_task_free(pyggml_task * task);

// The slot starts on the prompt: n_cached tokens of it are reused, the slot may use n_ctx positions.
PYGGML_API void pyggml_task_start(pyggml_task * task, int32_t id_slot, int32_t n_ctx, int32_t n_cached);
// Time spent parked is nobody's prompt or generation time.
PYGGML_API void pyggml_task_add_pause(pyggml_task * task, int64_t pause_us);
// The context was shifted: of the n_keep + n_discard first tokens only n_keep are left, the text is truncated.
PYGGML_API void pyggml_task_note_shift(pyggml_task * task, int32_t n_keep, int32_t n_discard);

// Makes the sampler end the reasoning. *is_armed is 0 where the request did not ask for that control.
PYGGML_API int pyggml_task_end_reasoning(pyggml_task * task, int32_t * is_armed, pyggml_error * err);

typedef struct pyggml_task_stats {
    int64_t n_prompt_cached;
    int64_t n_prompt_processed;
    int64_t n_gen;
    int64_t n_gen_steps;
    int64_t t_prompt_us;
    int64_t t_gen_us;
    int32_t has_next_token;
    int32_t has_new_line;
    int64_t n_draft_tokens;      // guessed
    int64_t n_draft_accepted;    // of these, said by the target too
    int64_t n_draft_verif_steps; // steps that verified a draft
    const uint64_t * n_accepted_per_pos; // by place in the draft; valid until the task's next step
    int32_t n_draft_positions;
} pyggml_task_stats;

PYGGML_API void pyggml_task_get_stats(const pyggml_task * task, pyggml_task_stats * out);

// The server-sent events of a prompt-progress report (n_past prompt tokens are in the cache).
PYGGML_API int pyggml_task_progress(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err);
// The end of the task, for pyggml_request_format. Fails too where an event of the task could not be formatted.
PYGGML_API int pyggml_task_final(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err);

// -- drafts ----------------------------------------------------------------------------------------------------------

// Guesses up to n_max[i] of the tokens that follow each task's last one, all tasks together. out[i] is valid until the
// task's next step or draft, and may be empty; the next batch has these tokens behind the task's last one.
PYGGML_API int  pyggml_draft(pyggml_server * server, int32_t n, pyggml_task * const * tasks, const int32_t * n_max,
                             pyggml_tokens * out, pyggml_error * err);
// There is no room to verify them: the next batch has the task's last token alone.
PYGGML_API void pyggml_task_drop_draft(pyggml_task * task);

// -- the one call per step -------------------------------------------------------------------------------------------

enum pyggml_stop {
    PYGGML_STOP_NONE  = 0,
    PYGGML_STOP_EOS   = 1,
    PYGGML_STOP_WORD  = 2,
    PYGGML_STOP_LIMIT = 3,
    PYGGML_STOP_EMBEDDED = 4, // the embedding or score is there, nothing was sampled
};

enum pyggml_failure {
    PYGGML_FAILED       = 1, // sampling threw
    PYGGML_FAILED_LIMIT = 2, // what the request asks for takes too much time or memory
};

// What one slot has in the batch.
typedef struct pyggml_row {
    pyggml_task * task;
    int32_t       i_batch;         // the row to sample from, or -1; with a draft, that of the token before it
    int32_t       n_draft;         // guesses in the rows behind i_batch: all that pyggml_draft gave, or none
    int32_t       n_prompt_tokens; // tokens of its prompt in this batch
    const pyggml_task * parent;    // whose prompt in this batch is its own too: it takes over its counters; else NULL
    int32_t       n_past;          // tokens in the slot once the batch is decoded, guesses not counted
    int32_t       n_pos;           // the positions that they take: fewer than tokens where images are among them
} pyggml_row;

typedef struct pyggml_sampled {
    pyggml_tokens       tokens;     // the sampled ones, all but the last of them in the slot; valid until the next step.
                                    // None where no row was sampled, and where a draft has to be verified once more: the
                                    // slot then holds what it held before
    pyggml_view         text;       // streamed tasks: server-sent events, possibly none; valid until the next step. With
                                    // the report on the prompt that ends here, if the task wants one
    int32_t             stop;       // enum pyggml_stop; not NONE: call pyggml_task_final
    int32_t             goes_on;    // the last token is in the next batch, which was decoded
    int32_t             failed;     // enum pyggml_failure; not 0: `text` is the message; other rows are unharmed
} pyggml_sampled;

typedef struct pyggml_batch_view {
    int32_t              n_tokens;
    const llama_token *  token;
    const llama_pos *    pos;
    const llama_seq_id * seq_id;
    const int8_t *       output;
} pyggml_batch_view;

// Decodes the batch and remembers it and its rows; a device may still compute it when this returns. All rows agree in `embeds` and in the scales of
// their tokens. *decode_status is llama_decode's result.
PYGGML_API int pyggml_step_decode(pyggml_server * server, const pyggml_batch_view * batch, int32_t n_rows,
                                  const pyggml_row * rows, int32_t * decode_status, pyggml_error * err);

// For the batch decoded last, with status 0: waits for it where a row is sampled, samples and accepts every ready row, or
// takes its embedding, and takes guesses that were wrong out of their slot again. `out` has an entry for each row. Rows are
// sampled on several threads; what one gives does not depend on their number.
//
// go_on: the next batch has one token of each row that goes on, and nothing else. It is decoded before this returns, and is
// the batch decoded last from then on; `goes_on` says which rows are in it, in their order. *decode_status is its
// llama_decode result, 0 also where there is none: nobody goes on, there are guesses, or a device samples.
PYGGML_API int pyggml_step_sample(pyggml_server * server, int32_t go_on, pyggml_sampled * out, int32_t * decode_status,
                                  pyggml_error * err);

#ifdef __cplusplus
}
#endif
