// llama.cpp's log messages, handed to Python without running Python.
//
// The callback that llama.cpp calls, on whatever thread, only appends to a bounded queue under a mutex: a foreign
// thread never touches the interpreter, so it cannot deadlock on the GIL nor run into an interpreter that is exiting.
// Python takes the records out with pyggml_log_next(). Continuation pieces are joined per thread until the newline.
#pragma once

#include "error.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
#    include <string>

// Forgets the ERROR lines that this thread has logged so far / returns those since then, joined by "; ".
void        pyggml_log_forget_errors() noexcept;
std::string pyggml_log_recent_errors();

extern "C" {
#endif

struct pyggml_log_record {
    int32_t level;     // enum ggml_log_level, never CONT
    bool    is_llama;  // false: ggml's own message
    char *  text;      // UTF-8 without the final newline, owned by the record
};

PYGGML_API void pyggml_log_install(void); // routes llama.cpp's and ggml's messages here; again after somebody else did
PYGGML_API void pyggml_log_stop(void);    // from now on errors go to stderr and the rest is dropped; wakes the waiters
PYGGML_API bool pyggml_log_wait(int32_t timeout_ms);                  // blocks until a record is there; false: stopped
PYGGML_API size_t pyggml_log_n_records(void);                           // waiting now
PYGGML_API bool pyggml_log_next(struct pyggml_log_record * out);      // takes the oldest record; false: none is there
PYGGML_API void pyggml_log_record_free(struct pyggml_log_record * record);
PYGGML_API void pyggml_log_test_emit(int32_t level, const char * text); // what a foreign thread would do, for tests

#ifdef __cplusplus
}
#endif
