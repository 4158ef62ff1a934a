// The bound on calls that work on what a client sent, and the `operator new` that looks after it: see budget.hpp.
//
// The libraries that this one is loaded with take these operators too. Memory is malloc's as in libstdc++, so what was
// allocated here may be freed there and the other way round; then the count is less than exact, and time still ends it.
#include "budget.hpp"

#include <malloc.h>
#include <pthread.h>
#include <time.h>

#include <cstdlib>
#include <exception>

static constexpr int64_t  MIB               = 1024 * 1024;
static constexpr uint32_t ALLOCATIONS_A_LOOK = 256; // between two looks at the clock, which is a system call
static constexpr ptrdiff_t STACK_RESERVE    = 256 * 1024; // for what allocates nothing, and for the way out

__attribute__((tls_model("initial-exec"))) static thread_local pyggml_budget * current = nullptr;

static int64_t cpu_now_us() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return int64_t(t.tv_sec) * 1000000 + t.tv_nsec / 1000;
}

// The lowest address that this thread's frames may reach; NULL where the system does not say.
static const char * lowest_frame_of_this_thread() {
    static thread_local const char * lowest = nullptr;
    if (lowest == nullptr) {
        pthread_attr_t attributes;
        if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
            void * bottom = nullptr;
            size_t size   = 0;
            pthread_attr_getstack(&attributes, &bottom, &size);
            pthread_attr_destroy(&attributes);
            lowest = static_cast<const char *>(bottom) + STACK_RESERVE;
        }
    }
    return lowest;
}

pyggml_budget::pyggml_budget(const pyggml_budget_limits & limits) :
    limits(limits), outer(current), lowest_frame(lowest_frame_of_this_thread()), cpu_end_us(cpu_now_us() + limits.cpu_us) {
    current = this;
}

pyggml_budget::~pyggml_budget() {
    current = outer;
}

const char * pyggml_budget::what_is_exceeded(size_t n_bytes) {
    if (static_cast<const char *>(__builtin_frame_address(0)) < lowest_frame) {
        return "nested too deeply: make the grammar, schema or messages simpler";
    }
    if (n_bytes > size_t(limits.bytes) || taken_bytes > limits.bytes - int64_t(n_bytes)) {
        return "too much memory would be needed: make the grammar, schema or prompts smaller";
    }
    if (n_until_look-- > 0) {
        return why; // what is over stays over
    }
    n_until_look = ALLOCATIONS_A_LOOK;
    if (limits.is_abandoned != nullptr && *limits.is_abandoned != 0) {
        return "nobody waits for the result any more";
    }
    if (cpu_now_us() > cpu_end_us) {
        return "it would take too long: make the grammar, schema or prompts smaller";
    }
    return why;
}

void pyggml_budget::check(size_t n_bytes) {
    if (std::uncaught_exceptions() > 0) {
        return; // a destructor that allocates must not throw
    }
    const char * exceeded = what_is_exceeded(n_bytes);
    if (exceeded != nullptr) {
        why = exceeded;
        throw pyggml_budget_exceeded(exceeded);
    }
}

void pyggml_widen_budget(int64_t cpu_us, int64_t n_bytes) {
    if (current != nullptr) {
        current->widen(cpu_us, n_bytes);
    }
}

void pyggml_give_memory_back() {
    malloc_trim(0);
}

pyggml_budget_limits pyggml_limits_for_body(size_t n_bytes, const volatile int32_t * is_abandoned) {
    return { 5000000 + int64_t(n_bytes) * 10, 512 * MIB + int64_t(n_bytes) * 64, is_abandoned };
}

pyggml_budget_limits pyggml_limits_for_token() {
    return { 1000000, 512 * MIB };
}

pyggml_budget_limits pyggml_limits_for_grammar() {
    return { 5000000, 512 * MIB };
}

// -- the operators ---------------------------------------------------------------------------------------------------

void * operator new(size_t size) {
    pyggml_budget * budget = current;
    if (budget != nullptr) {
        budget->check(size);
    }
    void * memory = malloc(size == 0 ? 1 : size);
    while (memory == nullptr) {
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) {
            throw std::bad_alloc();
        }
        handler();
        memory = malloc(size == 0 ? 1 : size);
    }
    if (budget != nullptr) {
        budget->take(malloc_usable_size(memory));
    }
    return memory;
}

void operator delete(void * memory) noexcept {
    if (current != nullptr) {
        current->give_back(malloc_usable_size(memory));
    }
    free(memory);
}

void * operator new[](size_t size) {
    return operator new(size);
}

void operator delete[](void * memory) noexcept {
    operator delete(memory);
}

void operator delete(void * memory, size_t) noexcept {
    operator delete(memory);
}

void operator delete[](void * memory, size_t) noexcept {
    operator delete(memory);
}
