// Declarations of native/shim/server_media.h for cffi.

typedef struct pyggml_media pyggml_media;

typedef struct pyggml_media_run {
    int32_t      start;
    int32_t      n_tokens;
    int32_t      n_pos;
    const char * id;
} pyggml_media_run;

int     pyggml_task_media(const pyggml_task * task, pyggml_media ** out, pyggml_error * err);
void    pyggml_media_free(pyggml_media * media);
int32_t pyggml_media_n_runs(const pyggml_media * media);
void    pyggml_media_get_run(const pyggml_media * media, int32_t i, pyggml_media_run * out);
int     pyggml_media_save_run(const pyggml_media * media, int32_t i, pyggml_bytes * out, pyggml_error * err);
int     pyggml_saved_run_read(const char * data, size_t size, int32_t * n_tokens, int32_t * n_pos, pyggml_bytes * id,
                              pyggml_error * err);
int32_t pyggml_media_is_encoded(const pyggml_media * media, int32_t i);
int     pyggml_media_encode(pyggml_media * media, int32_t i, pyggml_error * err);
int     pyggml_media_decode(pyggml_server * server, const pyggml_row * row, int32_t i, int32_t pos,
                            int32_t * decode_status, pyggml_error * err);
