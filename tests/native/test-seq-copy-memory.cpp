// What copies do when the host has no memory: nothing is thrown through the C API, and the next call ends well. And that a
// whole state takes no more of it with the number of sequences.
#include <new>

#include "seq_copy.h"

// of this thread, since they were set
static thread_local size_t n_until_failure = SIZE_MAX;
static thread_local size_t largest_bytes   = 0;

void * operator new(size_t n_bytes) {
    largest_bytes = std::max(largest_bytes, n_bytes);
    if (n_until_failure != SIZE_MAX && n_until_failure-- == 0) {
        n_until_failure = SIZE_MAX; // once
        throw std::bad_alloc();
    }
    if (void * memory = malloc(n_bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void * memory) noexcept { free(memory); }
void operator delete(void * memory, size_t) noexcept { free(memory); }

// Calls with one allocation that fails, the first, the second and so on, until the call makes no more of them.
template <typename Call, typename After> static void with_each_failure(Call call, After after) {
    for (size_t n = 0;; ++n) {
        n_until_failure = n;
        call();
        const bool has_failed = n_until_failure == SIZE_MAX;
        n_until_failure       = SIZE_MAX;
        after();
        if (!has_failed) {
            CHECK(n > 0);
            return;
        }
    }
}

CASE(to_ask_whether_a_save_frees_its_cells_throws_nothing) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, 64, 32 << 20);
    chats.decode({ 0, 1 }, 8);
    const Copy copy = chats.make_copy(1 << 20);
    CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 0));
    with_each_failure([&] { llama_state_seq_copy_frees_on_issue(copy.get(), 0); },
                      [&] { CHECK(llama_state_seq_copy_frees_on_issue(copy.get(), 0)); });
}

CASE(a_save_or_prefetch_that_finds_no_memory_is_refused_and_the_next_one_is_right) {
    const Simdev sim;
    const Model  model = load_model();
    Chats        chats(model, 64, 32 << 20);
    chats.decode({ 0, 1 }, 8);
    const Bytes want       = chats.save(0);
    const Copy  copy       = chats.make_copy(want.size());
    const auto  save_again = [&] {
        llama_state_seq_copy_wait(copy.get());
        memset(llama_state_seq_copy_buf(copy.get()), 0, want.size());
        issue_save(copy, 0, want.size());
        llama_state_seq_copy_wait(copy.get());
        CHECK(held_by(copy, want.size()) == want);
    };
    with_each_failure([&] { llama_state_seq_copy_save(copy.get(), 0, want.size(), 0); }, save_again);
    with_each_failure([&] { llama_state_seq_copy_prefetch(copy.get()); }, save_again);
}

CASE(a_whole_state_takes_little_memory_for_its_cells) {
    const Simdev         sim;
    const Model          model  = load_model();
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = 1024;
    params.n_ubatch               = 64;
    params.n_seq_max              = 64;
    params.kv_unified             = true;
    const std::unique_ptr<llama_context, Freed<llama_free>> context(llama_init_from_model(model.get(), params));
    CHECK(context != nullptr);
    std::vector<llama_token> tokens(960, 5);
    CHECK(llama_decode(context.get(), llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) == 0);
    llama_synchronize(context.get());
    largest_bytes = 0;
    CHECK(llama_state_get_size(context.get()) > tokens.size());
    // rows and their numbers, but not 64 sequences for each of them
    CHECK(largest_bytes < tokens.size() * params.n_seq_max * sizeof(llama_seq_id) / 2);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
