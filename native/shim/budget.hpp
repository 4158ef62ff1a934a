// How much CPU time, memory and stack a call may take that works on what a client sent. Internal to the shim.
//
// llama.cpp's parsers (grammars, schemas, patterns, templates, prompts) have no bound of their own: a few bytes can ask
// for hours and for all of the memory. They all allocate while they work, so `operator new` of this library looks after
// the bound and throws. Any thread; each has its own budget, or none, and then allocating costs one comparison more.
#pragma once

#include "error.h"

#include <cstddef>
#include <cstdint>

struct pyggml_budget_limits {
    int64_t                  cpu_us;              // of this thread
    int64_t                  bytes;               // allocated and not freed
    const volatile int32_t * is_abandoned = nullptr; // set by another thread: nobody waits for the result any more
};

// What `operator new` throws. It is a std::bad_alloc, so that who cares for memory only is served too.
struct pyggml_budget_exceeded : std::bad_alloc {
    const char * why;

    explicit pyggml_budget_exceeded(const char * why) : why(why) {}
    const char * what() const noexcept override { return why; }
};

// In force from its construction to its end, on its thread. One inside another takes its place meanwhile.
class pyggml_budget {
  public:
    explicit pyggml_budget(const pyggml_budget_limits & limits);
    ~pyggml_budget();
    pyggml_budget(const pyggml_budget &)             = delete;
    pyggml_budget & operator=(const pyggml_budget &) = delete;

    // Why it threw, or NULL. llama.cpp may have caught that and made some other error of it.
    const char * exceeded() const { return why; }

    void widen(int64_t cpu_us, int64_t n_bytes) {
        cpu_end_us += cpu_us;
        limits.bytes += n_bytes;
    }

    // For `operator new` and `operator delete`.
    void check(size_t n_bytes);
    void take(size_t n_bytes) { taken_bytes += int64_t(n_bytes); }
    void give_back(size_t n_bytes) { taken_bytes -= int64_t(n_bytes); }

  private:
    const char * what_is_exceeded(size_t n_bytes);

    pyggml_budget_limits limits;
    pyggml_budget *      outer;
    const char *         lowest_frame;
    const char *         why          = nullptr;
    int64_t              cpu_end_us   = 0;
    int64_t              taken_bytes  = 0;
    uint32_t             n_until_look = 0;
};

// Lets the call that this thread works on take so much more, which what it reads asks for.
void pyggml_widen_budget(int64_t cpu_us, int64_t n_bytes);
// After a budget was exceeded: what was freed goes to the system at once. Milliseconds.
void pyggml_give_memory_back();

// For a body of this size: what no honest request comes near.
pyggml_budget_limits pyggml_limits_for_body(size_t n_bytes, const volatile int32_t * is_abandoned);
// For one token of one task, which everybody else waits for.
pyggml_budget_limits pyggml_limits_for_token();
// For a grammar that comes without a body.
pyggml_budget_limits pyggml_limits_for_grammar();
