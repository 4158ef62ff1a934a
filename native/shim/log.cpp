// The queue between llama.cpp's log callback (any thread) and Python's drain. See log.h.
#include "log.h"

#include "llama.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

namespace {

constexpr size_t n_records_max = 65536; // a runaway logger must not take the memory
constexpr size_t n_error_bytes_max = 2048;

struct record {
    int32_t     level;
    bool        is_llama;
    std::string text;
};

struct log_queue {
    std::mutex              mutex;
    std::condition_variable filled;
    std::deque<record>      records;
    size_t                  n_dropped = 0;
    bool                    stopped   = false;
};

// Leaked on purpose: a thread that outlives static destruction may still log.
log_queue & queue() {
    static log_queue * q = new log_queue();
    return *q;
}

// What this thread has logged without a newline so far, and its recent errors. Made again, and then leaked, if the
// thread logs after its thread-local objects have gone (the main thread at exit does).
struct thread_text {
    record      pending = { GGML_LOG_LEVEL_INFO, false, {} };
    std::string errors;
};

thread_text & local() {
    static thread_local thread_text * text = nullptr;
    static thread_local struct owner {
        thread_text * owned = nullptr;
        ~owner() {
            delete owned;
            owned = nullptr;
            text  = nullptr;
        }
    } own;
    if (text == nullptr) {
        text = own.owned = new thread_text();
    }
    return *text;
}

void append(record && r) {
    auto & q = queue();
    std::lock_guard<std::mutex> lock(q.mutex);
    if (q.stopped) {
        if (r.level == GGML_LOG_LEVEL_ERROR) {
            fprintf(stderr, "%s\n", r.text.c_str());
        }
        return;
    }
    if (q.records.size() >= n_records_max) {
        q.n_dropped++;
        return;
    }
    q.records.push_back(std::move(r));
    q.filled.notify_all();
}

void flush(thread_text & t) {
    auto & text = t.pending.text;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
        text.pop_back();
    }
    if (text.empty()) {
        return;
    }
    if (t.pending.level == GGML_LOG_LEVEL_ERROR && t.errors.size() + text.size() < n_error_bytes_max) {
        t.errors += (t.errors.empty() ? "" : "; ") + text;
    }
    append(std::move(t.pending));
    t.pending.text.clear();
}

void receive(ggml_log_level level, const char * text, bool is_llama) noexcept {
    try {
        auto & t = local();
        if (level != GGML_LOG_LEVEL_CONT) {
            flush(t);
            t.pending.level    = level == GGML_LOG_LEVEL_NONE ? GGML_LOG_LEVEL_INFO : level;
            t.pending.is_llama = is_llama;
        }
        t.pending.text += text;
        if (!t.pending.text.empty() && t.pending.text.back() == '\n') {
            flush(t);
        }
    } catch (...) {
        // out of memory while logging: the message is lost, the caller must not be
    }
}

void receive_llama(ggml_log_level level, const char * text, void *) {
    receive(level, text, true);
}

void receive_ggml(ggml_log_level level, const char * text, void *) {
    receive(level, text, false);
}

} // namespace

void pyggml_log_forget_errors() noexcept {
    local().errors.clear();
}

std::string pyggml_log_recent_errors() {
    auto & t = local();
    flush(t);
    return t.errors;
}

extern "C" {

void pyggml_log_install(void) {
    llama_log_set(receive_llama, nullptr); // sets ggml's too
    ggml_log_set(receive_ggml, nullptr);
}

void pyggml_log_stop(void) {
    auto & q = queue();
    std::lock_guard<std::mutex> lock(q.mutex);
    q.stopped = true;
    q.filled.notify_all();
}

bool pyggml_log_wait(int32_t timeout_ms) {
    auto & q = queue();
    std::unique_lock<std::mutex> lock(q.mutex);
    q.filled.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return q.stopped || !q.records.empty(); });
    return !q.stopped;
}

size_t pyggml_log_n_records(void) {
    auto & q = queue();
    std::lock_guard<std::mutex> lock(q.mutex);
    return q.records.size();
}

bool pyggml_log_next(struct pyggml_log_record * out) {
    auto & q = queue();
    std::lock_guard<std::mutex> lock(q.mutex);
    if (q.records.empty()) {
        return false;
    }
    auto & front  = q.records.front();
    out->level    = front.level;
    out->is_llama = front.is_llama;
    out->text     = strdup(front.text.c_str());
    q.records.pop_front();
    if (q.n_dropped > 0 && q.records.empty()) {
        q.records.push_back({ GGML_LOG_LEVEL_WARN, false,
                              "log queue was full: " + std::to_string(q.n_dropped) + " messages were dropped" });
        q.n_dropped = 0;
    }
    return out->text != nullptr;
}

void pyggml_log_record_free(struct pyggml_log_record * record) {
    free(record->text);
    record->text = nullptr;
}

void pyggml_log_test_emit(int32_t level, const char * text) {
    receive_ggml((ggml_log_level) level, text, nullptr);
}

} // extern "C"
