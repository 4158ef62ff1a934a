// Images and sounds in prompts (--mmproj): what of a prompt they are, and their way into the context.
//
// An image, or half a minute or so of a sound, takes consecutive tokens of its task's prompt, each LLAMA_TOKEN_NULL: a run. It is encoded, which needs no
// context and may be done on any one other thread, and then decoded as one step. With M-RoPE a run takes
// fewer positions than tokens.
#pragma once

#include "server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyggml_media pyggml_media; // a prompt's images and sounds; outlives its task, and not its server

typedef struct pyggml_media_run {
    int32_t      start;    // of the prompt's tokens
    int32_t      n_tokens; // cells that it takes
    int32_t      n_pos;    // positions that it takes
    const char * id;       // of the file's content; valid as long as the media
} pyggml_media_run;

// Those of the task's prompt, which the tasks of one prompt share; NULL where it has none.
PYGGML_API int     pyggml_task_media(const pyggml_task * task, pyggml_media ** out, pyggml_error * err);
PYGGML_API void    pyggml_media_free(pyggml_media * media);
PYGGML_API int32_t pyggml_media_n_runs(const pyggml_media * media);
PYGGML_API void    pyggml_media_get_run(const pyggml_media * media, int32_t i, pyggml_media_run * out);

// Run i as llama-server's slot files have it: what it is, and nothing of the image or the sound itself.
PYGGML_API int pyggml_media_save_run(const pyggml_media * media, int32_t i, pyggml_bytes * out, pyggml_error * err);
// What it is, of such bytes. Fails where they are none.
PYGGML_API int pyggml_saved_run_read(const char * data, size_t size, int32_t * n_tokens, int32_t * n_pos,
                                     pyggml_bytes * id, pyggml_error * err);

// Whether run i can be decoded now.
PYGGML_API int32_t pyggml_media_is_encoded(const pyggml_media * media, int32_t i);
// Encodes run i, and those after it that fit the same batch of the encoder. Blocks. One at a time for one server.
PYGGML_API int     pyggml_media_encode(pyggml_media * media, int32_t i, pyggml_error * err);

// Decodes run i, which is encoded, at position `pos` of the task's sequence, and gives its embeddings up. Engine thread.
// `row` says what the sequence holds afterwards; of it the task, n_prompt_tokens and n_past are read.
// *decode_status is llama_decode's result. Unless it is 0 the sequence holds what it held before.
PYGGML_API int pyggml_media_decode(pyggml_server * server, const pyggml_row * row, int32_t i, int32_t pos,
                                   int32_t * decode_status, pyggml_error * err);

#ifdef __cplusplus
}
#endif
