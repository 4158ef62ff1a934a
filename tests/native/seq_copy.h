// What the cases about asynchronous sequence copies share: a real model on simdev, and a context with three sequences.
//
// SEQ_COPY_MODEL names the model's file. What is done asynchronously is compared with the synchronous calls, in the same
// context or in a second one that had the same history.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "llama.h"
#include "simulated.h"

using Bytes  = std::vector<uint8_t>;
using Copy   = std::unique_ptr<llama_state_seq_copy, Freed<llama_state_seq_copy_free>>;
using Model  = std::unique_ptr<llama_model, Freed<llama_model_free>>;
using Ids    = std::vector<llama_seq_id>;
using Logits = std::vector<float>;

inline Model load_model(int n_gpu_layers = 99) {
    const char * path = getenv("SEQ_COPY_MODEL");
    CHECK(path != nullptr && "SEQ_COPY_MODEL names no model");
    ggml_backend_load_all(); // the CPU; simdev is loaded already
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = n_gpu_layers;
    Model model(llama_model_load_from_file(path, params));
    CHECK(model != nullptr);
    return model;
}

class Chats {
public:
    explicit Chats(const Model & model, uint32_t n_ubatch = 64, size_t n_bytes_staging = 0,
                   llama_flash_attn_type flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO)
        : model_(model.get()) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx           = 256;
        params.n_seq_max       = 4;
        params.n_ubatch        = n_ubatch;
        params.n_threads       = 1;
        params.n_threads_batch = 1;
        params.kv_unified      = true;
        params.n_bytes_staging = n_bytes_staging;
        params.flash_attn_type = flash_attn_type;
        context.reset(llama_init_from_model(model_, params));
        CHECK(context != nullptr);
    }

    // n tokens of each, in one batch, taking turns; what llama_decode returns.
    int try_decode(const Ids & ids, int n_tokens = 1) {
        llama_batch batch = llama_batch_init(n_tokens * static_cast<int>(ids.size()), 0, 1);
        for (int i = 0; i < n_tokens; ++i) {
            for (const llama_seq_id id : ids) {
                batch.token[batch.n_tokens]     = 5 + (7 * id + n_pos[id]) % 90;
                batch.pos[batch.n_tokens]       = n_pos[id]++;
                batch.n_seq_id[batch.n_tokens]  = 1;
                batch.seq_id[batch.n_tokens][0] = id;
                batch.logits[batch.n_tokens]    = i + 1 == n_tokens;
                ++batch.n_tokens;
            }
        }
        const int result = llama_decode(context.get(), batch);
        llama_batch_free(batch);
        return result;
    }
    void decode(const Ids & ids, int n_tokens = 1) { CHECK(try_decode(ids, n_tokens) == 0); }

    Logits logits(size_t n_rows) {
        Logits rows(n_rows * static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_))));
        memcpy(rows.data(), llama_get_logits(context.get()), rows.size() * sizeof(float));
        return rows;
    }

    Bytes save(llama_seq_id id) {
        Bytes state(llama_state_seq_get_size(context.get(), id));
        CHECK(llama_state_seq_get_data(context.get(), state.data(), state.size(), id) == state.size());
        return state;
    }
    void restore(llama_seq_id id, const Bytes & state) {
        CHECK(llama_state_seq_set_data(context.get(), state.data(), state.size(), id) == state.size());
    }
    void remove(llama_seq_id id) { llama_memory_seq_rm(llama_get_memory(context.get()), id, -1, -1); }

    Copy make_copy(size_t n_bytes = 0) {
        Copy copy(llama_state_seq_copy_init(context.get()));
        CHECK(copy != nullptr && llama_state_seq_copy_buf_resize(copy.get(), n_bytes));
        return copy;
    }

    std::unique_ptr<llama_context, Freed<llama_free>> context;
    std::vector<llama_pos>                            n_pos = std::vector<llama_pos>(4, 0);

private:
    llama_model * model_;
};

// Two contexts of the same history: sequence 1 leaves one of them through `copy`, and is `state` in both.
struct Twins {
    explicit Twins(size_t n_bytes_staging = 0) : chats(model, 64, n_bytes_staging), twin(model) {
        both([](Chats & each) { each.decode({ 0, 1, 2 }, 8); });
        state = twin.save(1);
        copy  = chats.make_copy(state.size());
    }

    template <typename Work> void both(Work work) {
        work(chats);
        work(twin);
    }
    // Others are in its cells, and in the twin it has come back.
    void give_cells_of_1_away() {
        both([](Chats & each) {
            each.remove(1);
            each.decode({ 0, 2 }, 4);
            CHECK(each.logits(2).size() > 0); // what is read too early is not what was there
        });
        twin.restore(1, state);
    }
    void decode(const Ids & ids) {
        both([&](Chats & each) { each.decode(ids); });
    }
    bool has_same_logits(size_t n_rows) { return chats.logits(n_rows) == twin.logits(n_rows); }

    const Model model = load_model();
    Chats       chats, twin;
    Bytes       state;
    Copy        copy;
};

inline void issue_save(const Copy & copy, llama_seq_id id, size_t n_bytes) {
    CHECK(llama_state_seq_copy_save(copy.get(), id, n_bytes, 0) == n_bytes);
}
inline void issue_restore(const Copy & copy, llama_seq_id id, const Bytes & state) {
    memcpy(llama_state_seq_copy_buf(copy.get()), state.data(), state.size());
    CHECK(llama_state_seq_copy_restore(copy.get(), id, state.size(), 0) == state.size());
}
inline bool  is_done(const Copy & copy) { return llama_state_seq_copy_done(copy.get()); }
inline Bytes held_by(const Copy & copy, size_t n_bytes) {
    const uint8_t * data = llama_state_seq_copy_buf(copy.get());
    return Bytes(data, data + n_bytes);
}
