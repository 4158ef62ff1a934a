// What this thread logs, kept: see log_tee.hpp.
#include "log_tee.hpp"

static std::mutex & one_at_a_time() {
    static std::mutex mutex;
    return mutex;
}

// Of this thread; NULL while it has none.
static pyggml_log_tee *& current() {
    static thread_local pyggml_log_tee * tee = nullptr;
    return tee;
}

pyggml_log_tee::pyggml_log_tee() : lock(one_at_a_time()) {
    llama_log_get(&llama_before.callback, &llama_before.user_data);
    ggml_log_get(&ggml_before.callback, &ggml_before.user_data);
    current() = this;
    llama_log_set(receive, this); // sets ggml's too
}

pyggml_log_tee::~pyggml_log_tee() {
    llama_log_set(llama_before.callback, llama_before.user_data);
    ggml_log_set(ggml_before.callback, ggml_before.user_data);
    current() = nullptr;
}

std::string pyggml_log_tee::first_error() const {
    const std::string line  = error.substr(0, error.find('\n'));
    const size_t      colon = line.find(": ");
    return colon != std::string::npos && line.find(' ') > colon ? line.substr(colon + 2) : line;
}

void pyggml_log_tee::keep(ggml_log_level level, const char * line) {
    try {
        if (level != GGML_LOG_LEVEL_DEBUG) {
            text += line;
        }
        if (level == GGML_LOG_LEVEL_ERROR && error.empty()) {
            error = line;
        }
    } catch (const std::exception &) {
        // out of memory: the reason is lost, the message goes on
    }
}

void pyggml_log_tee::receive(ggml_log_level level, const char * line, void * user_data) {
    const auto & tee = *static_cast<pyggml_log_tee *>(user_data);
    if (current() != nullptr) {
        current()->keep(level, line);
    }
    if (tee.llama_before.callback != nullptr) {
        tee.llama_before.callback(level, line, tee.llama_before.user_data);
    }
}
