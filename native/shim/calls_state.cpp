// Saving and restoring one sequence: see calls.h. llama_state_seq_load_file is not here: it reads on past the end of a
// file that was cut off, and then asserts. The bindings read the file and restore from the buffer.
#include "call_guard.hpp"
#include "calls.h"

namespace {

int fail_restore(pyggml_error * err, bool * no_room) {
    *no_room = pyggml_log_says_no_room(pyggml_log_recent_errors());
    return pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "cannot restore the state");
}

} // namespace

extern "C" {

int pyggml_state_size(struct llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags, size_t * size,
                      pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *size = llama_state_seq_get_size_ext(ctx, seq_id, flags);
        return *size > 0 ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "cannot size the state");
    });
}

int pyggml_state_get(struct llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq_id,
                     llama_state_seq_flags flags, size_t * written, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *written = llama_state_seq_get_data_ext(ctx, dst, size, seq_id, flags);
        return *written > 0 ? PYGGML_OK : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "cannot save the state");
    });
}

int pyggml_state_set(struct llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq_id,
                     llama_state_seq_flags flags, size_t * n_read, bool * no_room, pyggml_error * err) {
    *no_room = false;
    return pyggml_call(err, [&]() -> int {
        *n_read = llama_state_seq_set_data_ext(ctx, src, size, seq_id, flags);
        return *n_read > 0 ? PYGGML_OK : fail_restore(err, no_room);
    });
}

int pyggml_state_save_file(struct llama_context * ctx, const char * path, llama_seq_id seq_id,
                           const llama_token * tokens, size_t n_tokens, size_t * written, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *written = llama_state_seq_save_file(ctx, path, seq_id, tokens, n_tokens);
        return *written > 0
            ? PYGGML_OK
            : pyggml_fail_with_log(err, PYGGML_E_RUNTIME, std::string("cannot save the state to ") + path);
    });
}

} // extern "C"
