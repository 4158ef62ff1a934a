// Asynchronous copies: see transfer.h.
#include "transfer.h"

#include "call_guard.hpp"
#include "log_tee.hpp"

namespace {

// What follows llama.cpp's own "cannot": a test pins these words against the tree. Empty: it was logged before.
std::string reason_in(const std::string & logged) {
    static const std::string said = "cannot be copied asynchronously: ";
    const size_t at = logged.find(said);
    return at == std::string::npos ? "" : logged.substr(at + said.size(), logged.find('\n', at) - at - said.size());
}

int refuse(pyggml_error * err, const std::string & why) {
    static const std::string what = "this context cannot copy asynchronously: ";
    return pyggml_fail(err, PYGGML_E_RUNTIME, (what + (why.empty() ? "the log said why before" : why)).c_str());
}

} // namespace

extern "C" {

int pyggml_transfer_init(struct llama_context * ctx, struct llama_state_seq_copy ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_call(err, [&]() -> int {
        const pyggml_log_tee tee;
        *out = llama_state_seq_copy_init(ctx);
        return *out != nullptr ? PYGGML_OK : refuse(err, reason_in(tee.kept()));
    });
}

void pyggml_transfer_free(struct llama_state_seq_copy * copy) {
    pyggml_call(nullptr, [&] { llama_state_seq_copy_free(copy); });
}

int pyggml_transfer_reserve(struct llama_state_seq_copy * copy, size_t size, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        const std::string what = "no memory for a buffer of " + std::to_string(size) + " bytes";
        return llama_state_seq_copy_buf_resize(copy, size) ? PYGGML_OK
                                                           : pyggml_fail_with_log(err, PYGGML_E_NOMEM, what);
    });
}

int pyggml_transfer_release(struct llama_state_seq_copy * copy, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_state_seq_copy_buf_free(copy); });
}

int pyggml_transfer_save(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                         llama_state_seq_flags flags, size_t * n, bool * frees, pyggml_error * err) {
    *n     = 0;
    *frees = false;
    return pyggml_call(err, [&]() -> int {
        const bool issued = llama_state_seq_copy_save(copy, seq_id, size, flags) > 0;
        *n                = llama_state_seq_copy_state_size(copy);
        if (issued) {
            *frees = llama_state_seq_copy_frees_on_issue(copy, seq_id);
            return PYGGML_OK;
        }
        if (*n == 0) {
            return pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "the save was refused");
        }
        const std::string what = "the state has " + std::to_string(*n) + " bytes, there is room for ";
        return pyggml_fail(err, PYGGML_E_RUNTIME, (what + std::to_string(size)).c_str());
    });
}

int pyggml_transfer_restore(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                            llama_state_seq_flags flags, size_t * n, bool * no_room, pyggml_error * err) {
    *no_room = false;
    return pyggml_call(err, [&]() -> int {
        *n = llama_state_seq_copy_restore(copy, seq_id, size, flags);
        if (*n > 0) {
            return PYGGML_OK;
        }
        *no_room = pyggml_log_says_no_room(pyggml_log_recent_errors());
        return pyggml_fail_with_log(err, PYGGML_E_RUNTIME, "the restore was refused");
    });
}

int pyggml_transfer_frees_on_issue(struct llama_state_seq_copy * copy, llama_seq_id seq_id, bool * frees,
                                   pyggml_error * err) {
    return pyggml_call(err, [&] { *frees = llama_state_seq_copy_frees_on_issue(copy, seq_id); });
}

int pyggml_transfer_prefetch(struct llama_state_seq_copy * copy, size_t n_loaded, size_t n_bytes, bool * issued,
                             size_t * n_left, pyggml_error * err) {
    return pyggml_call(err, [&] {
        const bool is_known = n_loaded == 0 || llama_state_seq_copy_load(copy, n_loaded);
        *issued = is_known && llama_state_seq_copy_prefetch_part(copy, n_bytes);
        *n_left = llama_state_seq_copy_prefetch_left(copy);
    });
}

int pyggml_transfer_prefetch_drop(struct llama_state_seq_copy * copy, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_state_seq_copy_prefetch_drop(copy); });
}

int pyggml_transfer_done(struct llama_state_seq_copy * copy, bool * done, pyggml_error * err) {
    return pyggml_call(err, [&] { *done = llama_state_seq_copy_done(copy); });
}

int pyggml_transfer_wait(struct llama_state_seq_copy * copy, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_state_seq_copy_wait(copy); });
}

} // extern "C"
