// Keeps what this thread logs while it lives: llama.cpp says in the log only why it refuses something. Internal to the
// shim; any thread, one at a time.
#pragma once

#include "llama.h"

#include <mutex>
#include <string>

// What is kept is logged as well. Whoever logs on another thread meanwhile is logged as before.
class pyggml_log_tee {
  public:
    pyggml_log_tee();
    ~pyggml_log_tee();
    pyggml_log_tee(const pyggml_log_tee &)             = delete;
    pyggml_log_tee & operator=(const pyggml_log_tee &) = delete;

    // Everything but debug messages.
    const std::string & kept() const { return text; }
    // The first error, without the name of the function that it begins with; empty: there was none.
    std::string first_error() const;

  private:
    struct target {
        ggml_log_callback callback  = nullptr;
        void *            user_data = nullptr;
    };

    static void receive(ggml_log_level level, const char * line, void * user_data);
    void keep(ggml_log_level level, const char * line);

    std::lock_guard<std::mutex> lock;
    target                      llama_before;
    target                      ggml_before;
    std::string                 text;
    std::string                 error;
};
