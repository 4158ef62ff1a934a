// Random calls on two contexts, one with copies that simdev runs as late as their order allows, one with the synchronous
// calls: at each quiet point all states, the logits and the bytes in the copies' host memory are equal.
//
// SEQ_COPY_SEED and SEQ_COPY_STEPS say which calls and how many, SEQ_COPY_TYPE the type of the cache.
#include <algorithm>
#include <cstring>
#include <random>

#include "seq_copy.h"

static const int n_sequences = 4, n_copies = 3, n_tokens_max = 60;

static uint64_t number(const char * name, uint64_t otherwise) {
    const char * text = getenv(name);
    return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

static ggml_type cache_type() {
    const char * name = getenv("SEQ_COPY_TYPE");
    for (int i = 0; name != nullptr && i < GGML_TYPE_COUNT; ++i) {
        if (ggml_type_name(static_cast<ggml_type>(i)) != nullptr && strcmp(ggml_type_name(static_cast<ggml_type>(i)), name) == 0) {
            return static_cast<ggml_type>(i);
        }
    }
    CHECK(name == nullptr && "SEQ_COPY_TYPE names no type");
    return GGML_TYPE_F16;
}

struct Memory {
    Memory(const Model & model, size_t n_bytes_staging, bool is_unified) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx           = is_unified ? 256 : 4 * 256; // full at times
        params.n_seq_max       = n_sequences;
        params.n_ubatch        = 32;
        params.n_threads       = 1;
        params.n_threads_batch = 1;
        params.kv_unified      = is_unified;
        params.swa_full        = false;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.n_bytes_staging = n_bytes_staging;
        params.type_k = params.type_v = cache_type();
        context.reset(llama_init_from_model(model.get(), params));
        CHECK(context != nullptr);
        memory    = llama_get_memory(context.get());
        n_vocab   = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
        // a shift ends the process where all layers have a window, and the CPU has none for bf16
        can_shift = llama_memory_can_shift(memory) && !llama_model_is_recurrent(model.get()) &&
                    !llama_model_is_hybrid(model.get()) && llama_model_n_swa(model.get()) == 0 &&
                    params.type_k != GGML_TYPE_BF16;
    }

    llama_pos next(llama_seq_id id) const { return llama_memory_seq_pos_max(memory, id) + 1; }

    int decode(llama_seq_id id, int n_tokens) {
        llama_batch batch = llama_batch_init(n_tokens, 0, 1);
        for (int i = 0, pos = next(id); i < n_tokens; ++i, ++pos) {
            batch.token[i]     = 5 + (7 * id + pos) % 50;
            batch.pos[i]       = pos;
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = id;
            batch.logits[i]    = i + 1 == n_tokens;
        }
        batch.n_tokens   = n_tokens;
        const int result = llama_decode(context.get(), batch);
        llama_batch_free(batch);
        return result;
    }
    Logits logits() {
        const float * row = llama_get_logits_ith(context.get(), -1);
        return Logits(row, row + n_vocab);
    }
    Bytes save(llama_seq_id id) {
        Bytes state(llama_state_seq_get_size(context.get(), id));
        CHECK(llama_state_seq_get_data(context.get(), state.data(), state.size(), id) == state.size());
        return state;
    }
    bool restore(llama_seq_id id, const Bytes & state) {
        return llama_state_seq_set_data(context.get(), state.data(), state.size(), id) == state.size();
    }
    void remove(llama_seq_id id) { llama_memory_seq_rm(memory, id, -1, -1); }

    std::unique_ptr<llama_context, Freed<llama_free>> context;
    llama_memory_t                                    memory;
    size_t                                            n_vocab;
    bool                                              can_shift;
};

class Walk {
public:
    Walk(const Model & model, size_t n_bytes_staging, bool is_unified, uint64_t seed)
        : random(seed), late(model, n_bytes_staging, is_unified), twin(model, 0, is_unified) {
        for (int i = 0; i < n_copies; ++i) {
            copies.emplace_back(llama_state_seq_copy_init(late.context.get()));
        }
    }

    bool can_copy() const { return copies[0] != nullptr; }

    void step() {
        const llama_seq_id id   = below(n_sequences);
        const int          copy = below(n_copies), call = below(16);
        fprintf(stderr, "call %d of sequence %d, copy %d\n", call, id, copy);
        switch (call) {
        case 0: case 1: case 2: case 3: decode(id); break;
        case 4: case 5: save(copy, id); break;
        case 6: case 7: case 8: restore(copy, id); break;
        case 9: llama_state_seq_copy_prefetch_part(copies[copy].get(), 1 + below(5000)); break;
        case 10: below(3) == 0 ? llama_state_seq_copy_prefetch_drop(copies[copy].get()) : wait(copy); break;
        case 11: llama_state_seq_copy_done(copies[copy].get()); break; // sets the work going
        case 12: below(2) == 0 ? remove(id) : cut(id); break;
        case 13: share(id, below(n_sequences)); break;
        case 14: below(4) == 0 ? keep(id) : shift(id); break;
        case 15: below(8) == 0 ? clear() : be_quiet(); break;
        }
    }

    void be_quiet() {
        decode(below(n_sequences)); // which applies what a shift or copy has left to do
        std::vector<int> order(n_copies);
        for (int i = 0; i < n_copies; ++i) {
            order[i] = i;
        }
        std::shuffle(order.begin(), order.end(), random);
        for (const int i : order) {
            wait(i);
        }
        for (llama_seq_id id = 0; id < n_sequences; ++id) {
            CHECK(late.save(id) == twin.save(id));
        }
    }

private:
    int below(int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }

    template <typename Work> void both(Work work) {
        work(late);
        work(twin);
    }

    void wait(int i) {
        llama_state_seq_copy_wait(copies[i].get());
        if (!states[i].empty()) {
            CHECK(held_by(copies[i], states[i].size()) == states[i]);
        }
    }

    void decode(llama_seq_id id) {
        const int n_tokens = 1 + below(below(4) == 0 ? n_tokens_max : 4);
        const int result   = twin.decode(id, n_tokens);
        CHECK(late.decode(id, n_tokens) == result);
        CHECK(result != 0 || late.logits() == twin.logits());
    }

    void save(int i, llama_seq_id id) {
        const size_t n_bytes = llama_state_seq_get_size(late.context.get(), id);
        if (!llama_state_seq_copy_done(copies[i].get()) || !llama_state_seq_copy_buf_resize(copies[i].get(), n_bytes)) {
            return;
        }
        states[i].clear();
        if (llama_state_seq_copy_save(copies[i].get(), id, n_bytes, 0) > 0) {
            states[i] = twin.save(id);
        }
    }

    void restore(int i, llama_seq_id id) {
        if (states[i].empty()) {
            return;
        }
        const llama_pos before = late.next(id);
        if (llama_state_seq_copy_restore(copies[i].get(), id, states[i].size(), 0) > 0) {
            CHECK(twin.restore(id, states[i]));
        } else if (before != late.next(id)) { // no room
            CHECK(!twin.restore(id, states[i]));
            twin.remove(id); // a hybrid memory keeps its recurrent part
        }
    }

    void remove(llama_seq_id id) {
        both([&](Memory & each) { each.remove(id); });
    }
    void cut(llama_seq_id id) {
        const llama_pos first = late.next(id) - 1 - below(3);
        both([&](Memory & each) {
            if (first <= 0 || !llama_memory_seq_rm(each.memory, id, first, -1) || each.next(id) != first) {
                each.remove(id);
            }
        });
    }
    void share(llama_seq_id from, llama_seq_id to) {
        if (from != to) {
            both([&](Memory & each) {
                each.remove(to);
                llama_memory_seq_cp(each.memory, from, to, -1, -1);
            });
        }
    }
    void keep(llama_seq_id id) {
        both([&](Memory & each) { llama_memory_seq_keep(each.memory, id); });
    }
    void shift(llama_seq_id id) {
        const llama_pos n = 1 + below(4);
        if (!late.can_shift || late.next(id) <= 2 * n || llama_memory_seq_pos_min(late.memory, id) != 0) {
            return;
        }
        for (llama_seq_id other = 0; other < n_sequences; ++other) { // cells that it shares would move under the other
            if (other != id) {
                remove(other);
            }
        }
        both([&](Memory & each) {
            llama_memory_seq_rm(each.memory, id, 0, n);
            llama_memory_seq_add(each.memory, id, n, -1, -n);
        });
    }
    void clear() {
        both([](Memory & each) { llama_memory_clear(each.memory, false); });
    }

    std::mt19937_64 random;
    Memory          late, twin;
    std::vector<Copy> copies;
    Bytes             states[n_copies];
};

// Nobody has to say which seed failed: it is on stderr.
static void walk(size_t n_bytes_staging, bool is_unified) {
    const Simdev   sim;
    const Model    model = load_model();
    const uint64_t seed = number("SEQ_COPY_SEED", 1), n_steps = number("SEQ_COPY_STEPS", 300);
    Walk           one(model, n_bytes_staging, is_unified, seed);
    if (!one.can_copy()) {
        CHECK(n_bytes_staging == 0); // with a recurrent part
        return;
    }
    fprintf(stderr, "SEQ_COPY_SEED=%llu\n", static_cast<unsigned long long>(seed));
    for (uint64_t i = 0; i < n_steps; ++i) {
        one.step();
    }
    one.be_quiet();
    CHECK(sim.n_faults() == 0);
}

CASE(random_calls_equal_the_synchronous_ones_without_staging_memory) { walk(0, true); }
CASE(random_calls_equal_the_synchronous_ones_with_staging_memory) { walk(4 << 20, true); }
CASE(random_calls_equal_the_synchronous_ones_in_chunks) { walk(6 << 10, true); }
CASE(random_calls_equal_the_synchronous_ones_in_a_cache_for_each_sequence) { walk(4 << 20, false); }

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
