// Asynchronous copies of one sequence's state: llama_state_seq_copy_* of llama.h, none of which throws here.
//
// Errors as in calls.h. A transfer belongs to the thread of its context, also for its end; once the context is freed any
// thread may free it. Memory that a copy uses is the transfer's until the copy has ended.
#pragma once

#include "error.h"

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// PYGGML_E_RUNTIME: this context cannot copy asynchronously; the message is the reason that llama.cpp logged.
PYGGML_API int  pyggml_transfer_init(struct llama_context * ctx, struct llama_state_seq_copy ** out,
                                     pyggml_error * err);
// Waits for the copy in flight. NULL is fine.
PYGGML_API void pyggml_transfer_free(struct llama_state_seq_copy * copy);

// Makes the buffer at least `size` bytes large; what it held is lost if it grows. Not while a copy is in flight.
PYGGML_API int pyggml_transfer_reserve(struct llama_state_seq_copy * copy, size_t size, pyggml_error * err);
PYGGML_API int pyggml_transfer_release(struct llama_state_seq_copy * copy, pyggml_error * err);

// Issues the copy; `n` is the size of the state in bytes, of which `size` bytes of the buffer are room for, and `frees` what
// pyggml_transfer_frees_on_issue would say. If it is refused only because the state is larger, `n` is what it needs, else 0.
PYGGML_API int pyggml_transfer_save(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                                    llama_state_seq_flags flags, size_t * n, bool * frees, pyggml_error * err);
// `no_room` as in pyggml_state_set. The sequence holds no cells after a failure.
PYGGML_API int pyggml_transfer_restore(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                                       llama_state_seq_flags flags, size_t * n, bool * no_room, pyggml_error * err);
// Whether the sequence's cells can be removed as soon as its save has been issued; of a save in flight, whether they can.
PYGGML_API int pyggml_transfer_frees_on_issue(struct llama_state_seq_copy * copy, llama_seq_id seq_id, bool * frees,
                                              pyggml_error * err);
// Moves the state in the buffer to staging memory ahead of its restore, if it fits there. `n_loaded`: the size of a state
// that comes from elsewhere, which is not `issued` either if its bytes are none; 0 for the one that was saved last, and for
// further parts of one. `n_bytes`: about what to issue at most, for each device; `n_left`: what is not issued yet.
PYGGML_API int pyggml_transfer_prefetch(struct llama_state_seq_copy * copy, size_t n_loaded, size_t n_bytes, bool * issued,
                                        size_t * n_left, pyggml_error * err);
// Gives the staging memory of a prefetch back. Waits for it.
PYGGML_API int pyggml_transfer_prefetch_drop(struct llama_state_seq_copy * copy, pyggml_error * err);
PYGGML_API int pyggml_transfer_done(struct llama_state_seq_copy * copy, bool * done, pyggml_error * err);
PYGGML_API int pyggml_transfer_wait(struct llama_state_seq_copy * copy, pyggml_error * err);

#ifdef __cplusplus
}
#endif
