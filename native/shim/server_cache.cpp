// The prompt cache and the checkpoints: see server_cache.h. llama.cpp's own cache decides what is kept and found.
#include "server_cache.hpp"

#include <cstring>
#include <iterator>
#include <stdexcept>

// -- checkpoints -----------------------------------------------------------------------------------------------------

static const llama_state_seq_flags PARTIAL = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

static llama_context * draft_context(const pyggml_server & server) {
    return server.drafter ? server.drafter->own_context() : nullptr;
}

// Not load_tgt and load_dft, which end the process where there is no room. Without a context there is nothing to do.
static bool put_back(llama_context * ctx, const std::vector<uint8_t> & data, llama_seq_id seq_id) {
    return ctx == nullptr || data.empty() ||
           llama_state_seq_set_data_ext(ctx, data.data(), data.size(), seq_id, PARTIAL) == data.size();
}

extern "C" int pyggml_checkpoints_new(pyggml_checkpoints ** out, pyggml_error * err) {
    return pyggml_guard(err, [&] { *out = new pyggml_checkpoints(); });
}

extern "C" void pyggml_checkpoints_free(pyggml_checkpoints * list) {
    delete list;
}

extern "C" int32_t pyggml_checkpoints_count(const pyggml_checkpoints * list) {
    return int32_t(list->items.size());
}

extern "C" void pyggml_checkpoints_get_info(const pyggml_checkpoints * list, int32_t i, pyggml_checkpoint_info * out) {
    const common_prompt_checkpoint & c = *std::next(list->items.begin(), i);
    *out                               = { c.n_tokens, c.pos_min, c.pos_max, c.id_task, c.size() };
}

extern "C" void pyggml_checkpoints_erase(pyggml_checkpoints * list, int32_t i) {
    list->items.erase(std::next(list->items.begin(), i));
}

extern "C" int pyggml_checkpoints_restore(const pyggml_checkpoints * list, int32_t i, pyggml_server * server,
                                          int32_t seq_id, int32_t * restored, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const common_prompt_checkpoint & c = *std::next(list->items.begin(), i);
        *restored = put_back(server->ctx, c.data_tgt, seq_id) && put_back(draft_context(*server), c.data_dft, seq_id);
        if (*restored && server->drafter) {
            server->drafter->set_state(seq_id, c.data_spec);
        }
    });
}

extern "C" int pyggml_checkpoints_add(pyggml_checkpoints * list, pyggml_server * server, int32_t seq_id,
                                      pyggml_checkpoint_info * about, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        common_prompt_checkpoint c;
        c.id_task = about->id_task;
        c.update_pos(about->n_tokens, about->pos_min, about->pos_max);
        c.update_tgt(server->ctx, seq_id, PARTIAL);
        c.update_dft(draft_context(*server), seq_id, PARTIAL);
        if (server->drafter) {
            c.data_spec = server->drafter->state(seq_id);
        }
        about->size = c.size();
        list->items.push_back(std::move(c));
    });
}

// -- checkpoints in slot files ---------------------------------------------------------------------------------------
// How many, then each one's numbers and the target's part; drafts begin anew after a restore.

template <class T> static void append(std::string & out, const T & value) {
    out.append(reinterpret_cast<const char *>(&value), sizeof(value));
}

template <class T> static T take(const char *& at, const char * end) {
    if (size_t(end - at) < sizeof(T)) {
        throw std::invalid_argument("the checkpoints are truncated");
    }
    T value;
    memcpy(&value, at, sizeof(value));
    at += sizeof(value);
    return value;
}

size_t pyggml_checkpoints_size(const std::list<common_prompt_checkpoint> & items) {
    size_t n_bytes = items.empty() ? 0 : sizeof(uint32_t);
    for (const auto & c : items) {
        n_bytes += sizeof(int64_t) + 2 * sizeof(int32_t) + sizeof(uint64_t) + c.data_tgt.size();
    }
    return n_bytes;
}

extern "C" int pyggml_checkpoints_write(const pyggml_checkpoints * list, pyggml_bytes * out, pyggml_error * err) {
    *out = {};
    return pyggml_guard(err, [&] {
        std::string bytes;
        append(bytes, uint32_t(list->items.size()));
        for (const auto & c : list->items) {
            append(bytes, int64_t(c.n_tokens));
            append(bytes, int32_t(c.pos_min));
            append(bytes, int32_t(c.pos_max));
            append(bytes, uint64_t(c.data_tgt.size()));
            bytes.append(reinterpret_cast<const char *>(c.data_tgt.data()), c.data_tgt.size());
        }
        pyggml_bytes_assign(out, bytes);
    });
}

extern "C" int pyggml_checkpoints_read(pyggml_checkpoints * list, const char * data, size_t size, int64_t n_tokens_max,
                                       pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const char *     at  = data;
        const char *     end = data + size;
        decltype(list->items) items;
        for (uint32_t n = take<uint32_t>(at, end); n > 0; --n) {
            common_prompt_checkpoint c;
            const int64_t            n_tokens = take<int64_t>(at, end);
            const int32_t            pos_min  = take<int32_t>(at, end);
            const int32_t            pos_max  = take<int32_t>(at, end);
            const uint64_t           n_bytes  = take<uint64_t>(at, end);
            if (n_bytes > size_t(end - at) || n_tokens < 0 || n_tokens > n_tokens_max || pos_min < 0 ||
                pos_max < pos_min || pos_max >= n_tokens_max) {
                throw std::invalid_argument("the checkpoints are damaged");
            }
            c.update_pos(n_tokens, pos_min, pos_max);
            c.data_tgt.assign(at, at + n_bytes);
            at += n_bytes;
            items.push_back(std::move(c));
        }
        list->items = std::move(items);
    });
}

// -- prompt cache ----------------------------------------------------------------------------------------------------

static server_tokens to_server_tokens(const llama_token * tokens, int32_t n_tokens) {
    return server_tokens(llama_tokens(tokens, tokens + n_tokens), false);
}

static size_t state_size(llama_context * ctx, llama_seq_id seq_id) {
    return ctx == nullptr ? 0 : llama_state_seq_get_size_ext(ctx, seq_id, LLAMA_STATE_SEQ_FLAGS_NONE);
}

static bool copy_out(llama_context * ctx, llama_seq_id seq_id, std::vector<uint8_t> & data) {
    return ctx == nullptr || llama_state_seq_get_data_ext(ctx, data.data(), data.size(), seq_id,
                                                          LLAMA_STATE_SEQ_FLAGS_NONE) == data.size();
}

extern "C" int pyggml_prompt_cache_new(const pyggml_server * server, pyggml_prompt_cache ** out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        *out = new pyggml_prompt_cache{ server_prompt_cache(server->params.cache_ram_mib, llama_n_ctx(server->ctx)) };
    });
}

extern "C" void pyggml_prompt_cache_free(pyggml_prompt_cache * cache) {
    delete cache;
}

extern "C" int pyggml_prompt_cache_save(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                        int32_t * saved, pyggml_error * err) {
    *saved = 0;
    return pyggml_guard(err, [&] {
        llama_context *     ctx_dft = draft_context(*server);
        const server_prompt prompt{ to_server_tokens(tokens, n_tokens), list->items };
        const size_t        n_main = state_size(server->ctx, seq_id);
        const size_t        n_drft = state_size(ctx_dft, seq_id);
        if (cache->hands_out) {
            const server_prompt_cache_state about{ { prompt.tokens.clone(), prompt.checkpoints }, {} };
            pyggml_cached_prompts           obsolete;
            pyggml_make_room(*cache, prompt.tokens, n_main + n_drft + about.size(), obsolete);
        }
        auto * entry = cache->cache.alloc(prompt, n_main, n_drft);
        if (entry == nullptr) {
            return;
        }
        if (!copy_out(server->ctx, seq_id, entry->data.main) || !copy_out(ctx_dft, seq_id, entry->data.drft)) {
            cache->cache.states.pop_back();
            throw std::runtime_error("the state of sequence " + std::to_string(seq_id) + " could not be copied");
        }
        *saved = 1;
    });
}

extern "C" int pyggml_prompt_cache_load(pyggml_prompt_cache * cache, pyggml_server * server, int32_t seq_id,
                                        const llama_token * tokens, int32_t n_tokens, const llama_token * wanted,
                                        int32_t n_wanted, pyggml_checkpoints * list, pyggml_bytes * out,
                                        int32_t * intact, pyggml_error * err) {
    *out    = {};
    *intact = 1;
    return pyggml_guard(err, [&] {
        server_prompt prompt{ to_server_tokens(tokens, n_tokens), {} };
        const size_t  n_before = cache->cache.states.size();
        *intact = cache->cache.load(prompt, to_server_tokens(wanted, n_wanted), server->ctx, draft_context(*server), seq_id);
        if (*intact && cache->cache.states.size() < n_before) {
            const llama_tokens & found = prompt.tokens.get_tokens();
            const auto *         bytes = reinterpret_cast<const char *>(found.data());
            pyggml_bytes_assign(out, std::string(bytes, found.size() * sizeof(llama_token)));
            list->items = std::move(prompt.checkpoints);
        }
    });
}

extern "C" void pyggml_prompt_cache_hand_out(pyggml_prompt_cache * cache) {
    cache->hands_out = true;
}

extern "C" int pyggml_prompt_cache_trim(pyggml_prompt_cache * cache, pyggml_error * err) {
    return pyggml_guard(err, [&] { pyggml_trim(*cache); });
}

extern "C" void pyggml_prompt_cache_get_size(const pyggml_prompt_cache * cache, pyggml_prompt_cache_size * out) {
    out->n_prompts = int32_t(cache->cache.states.size());
    out->n_tokens  = int64_t(cache->cache.n_tokens());
    out->n_bytes   = cache->cache.size();
}
