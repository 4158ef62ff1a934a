// Prompts between the slots and the prompt cache, while their states are copied asynchronously: see server_cache.h.
#include "server_cache.hpp"

#include <algorithm>
#include <iterator>

using states_list = pyggml_cached_prompts;

struct pyggml_kept_prompt {
    states_list entry;    // one; none once it is in the cache
    states_list obsolete; // what made room for it: freed where its state is put, since that takes long too

    std::vector<uint8_t> & data(int32_t i_context) {
        return i_context == 0 ? entry.front().data.main : entry.front().data.drft;
    }
};

static server_tokens to_server_tokens(const llama_token * tokens, int32_t n_tokens) {
    return server_tokens(llama_tokens(tokens, tokens + n_tokens), false);
}

static bool begins_with(const server_tokens & tokens, const server_tokens & start) {
    return tokens.get_common_prefix(start) == start.size();
}

static bool is_known(const server_prompt_cache & cache, const server_tokens & tokens) {
    return std::any_of(cache.states.begin(), cache.states.end(),
                       [&](const auto & state) { return begins_with(state.prompt.tokens, tokens); });
}

static void evict_oldest(pyggml_prompt_cache & cache, states_list & others) {
    states_list & evicted = cache.hands_out ? cache.evicted : others;
    evicted.splice(evicted.end(), cache.cache.states, cache.cache.states.begin());
}

bool pyggml_make_room(pyggml_prompt_cache & cache, const server_tokens & tokens, size_t n_bytes, states_list & obsolete) {
    states_list & states = cache.cache.states;
    const size_t  limit  = cache.cache.limit_size;
    if (is_known(cache.cache, tokens) || (limit > 0 && n_bytes > limit)) {
        return false;
    }
    for (auto it = states.begin(); it != states.end();) {
        const auto next = std::next(it);
        if (begins_with(tokens, it->prompt.tokens)) {
            obsolete.splice(obsolete.end(), states, it);
        }
        it = next;
    }
    while (limit > 0 && !states.empty() && cache.cache.size() + n_bytes > limit) {
        evict_oldest(cache, obsolete);
    }
    return true;
}

void pyggml_trim(pyggml_prompt_cache & cache) {
    server_prompt_cache & of = cache.cache;
    states_list           freed;
    while (cache.hands_out && of.limit_size > 0 && !of.states.empty() && of.size() > of.limit_size) {
        evict_oldest(cache, freed);
    }
    // Where there is no limit in bytes there is one in tokens. Else what fits one limit fits the other.
    while (cache.hands_out && of.limit_size == 0 && of.limit_tokens > 0 && of.n_tokens() > of.limit_tokens) {
        evict_oldest(cache, freed);
    }
    of.update();
}

// As server_prompt_cache::load chooses, which restores at once.
static states_list::iterator find_better(server_prompt_cache & cache, const server_tokens & have,
                                         const server_tokens & wanted) {
    const auto n_common = have.get_common_prefix(wanted);
    float      f_keep   = have.empty() ? -1.0f : float(n_common) / have.size();
    float      f_sim    = float(n_common) / wanted.size();
    auto       best     = cache.states.end();
    for (auto it = cache.states.begin(); it != cache.states.end(); ++it) {
        const auto  n_alike  = it->prompt.tokens.get_common_prefix(wanted);
        const float f_keep_i = float(n_alike) / it->prompt.tokens.size();
        const float f_sim_i  = float(n_alike) / wanted.size();
        if (f_keep_i >= 0.25f && f_keep < f_keep_i && f_sim < f_sim_i) {
            f_keep = f_keep_i;
            f_sim  = f_sim_i;
            best   = it;
        }
    }
    return best;
}

extern "C" int pyggml_kept_prompt_begin(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const pyggml_checkpoints * list, size_t n_bytes, pyggml_kept_prompt ** out,
                                        pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        auto kept = std::make_unique<pyggml_kept_prompt>();
        kept->entry.push_back({ { to_server_tokens(tokens, n_tokens), list->items }, {} });
        const server_prompt_cache_state & entry = kept->entry.front();
        if (pyggml_make_room(*cache, entry.prompt.tokens, entry.size() + n_bytes, kept->obsolete)) {
            *out = kept.release();
        }
    });
}

extern "C" void pyggml_kept_prompt_free(pyggml_kept_prompt * kept) {
    delete kept;
}

extern "C" int pyggml_kept_prompt_put(pyggml_kept_prompt * kept, int32_t i_context, const void * data, size_t size,
                                      pyggml_error * err) {
    return pyggml_guard(err, [&] {
        kept->obsolete.clear();
        const auto * bytes = static_cast<const uint8_t *>(data);
        kept->data(i_context).assign(bytes, bytes + size);
    });
}

extern "C" const void * pyggml_kept_prompt_data(const pyggml_kept_prompt * kept, int32_t i_context) {
    return const_cast<pyggml_kept_prompt *>(kept)->data(i_context).data();
}

extern "C" size_t pyggml_kept_prompt_size(const pyggml_kept_prompt * kept, int32_t i_context) {
    return const_cast<pyggml_kept_prompt *>(kept)->data(i_context).size();
}

extern "C" int pyggml_kept_prompt_get_tokens(const pyggml_kept_prompt * kept, pyggml_bytes * out, pyggml_error * err) {
    *out = {};
    return pyggml_guard(err, [&] {
        const llama_tokens & tokens = kept->entry.front().prompt.tokens.get_tokens();
        const auto *         bytes  = reinterpret_cast<const char *>(tokens.data());
        pyggml_bytes_assign(out, std::string(bytes, tokens.size() * sizeof(llama_token)));
    });
}

extern "C" size_t pyggml_kept_prompt_checkpoints_size(const pyggml_kept_prompt * kept) {
    return pyggml_checkpoints_size(kept->entry.front().prompt.checkpoints);
}

extern "C" int pyggml_kept_prompt_get_checkpoints(const pyggml_kept_prompt * kept, pyggml_checkpoints * list,
                                                  pyggml_error * err) {
    return pyggml_guard(err, [&] { list->items = kept->entry.front().prompt.checkpoints; });
}

extern "C" int pyggml_prompt_cache_add(pyggml_prompt_cache * cache, pyggml_kept_prompt * kept, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (!is_known(cache->cache, kept->entry.front().prompt.tokens)) {
            cache->cache.states.splice(cache->cache.states.end(), kept->entry);
            pyggml_trim(*cache);
        }
    });
}

extern "C" int pyggml_prompt_cache_find(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, int32_t * n_found,
                                        int32_t * n_common, pyggml_error * err) {
    *n_found  = 0;
    *n_common = 0;
    return pyggml_guard(err, [&] {
        const server_tokens all   = to_server_tokens(wanted, n_wanted);
        const auto          found = find_better(cache->cache, to_server_tokens(tokens, n_tokens), all);
        if (found != cache->cache.states.end()) {
            *n_found  = int32_t(found->prompt.tokens.size());
            *n_common = int32_t(found->prompt.tokens.get_common_prefix(all));
        }
    });
}

static pyggml_kept_prompt * first_of(states_list & states) {
    if (states.empty()) {
        return nullptr;
    }
    auto kept = std::make_unique<pyggml_kept_prompt>();
    kept->entry.splice(kept->entry.end(), states, states.begin());
    return kept.release();
}

extern "C" int pyggml_prompt_cache_take_evicted(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out,
                                                pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] { *out = first_of(cache->evicted); });
}

extern "C" int pyggml_prompt_cache_take_oldest(pyggml_prompt_cache * cache, pyggml_kept_prompt ** out,
                                               pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] { *out = first_of(cache->cache.states); });
}

extern "C" int pyggml_kept_prompt_new(const llama_token * tokens, int32_t n_tokens, const pyggml_checkpoints * list,
                                      pyggml_kept_prompt ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        auto kept = std::make_unique<pyggml_kept_prompt>();
        kept->entry.push_back({ { to_server_tokens(tokens, n_tokens), list->items }, {} });
        *out = kept.release();
    });
}

extern "C" int pyggml_kept_prompt_make(pyggml_kept_prompt * kept, int32_t i_context, size_t size, void ** out,
                                       pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        kept->data(i_context).resize(size);
        *out = kept->data(i_context).data();
    });
}

extern "C" int pyggml_prompt_cache_take(pyggml_prompt_cache * cache, const llama_token * tokens, int32_t n_tokens,
                                        const llama_token * wanted, int32_t n_wanted, pyggml_kept_prompt ** out,
                                        pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        auto & states = cache->cache.states;
        auto   found  = find_better(cache->cache, to_server_tokens(tokens, n_tokens), to_server_tokens(wanted, n_wanted));
        if (found != states.end()) {
            auto kept = std::make_unique<pyggml_kept_prompt>();
            kept->entry.splice(kept->entry.end(), states, found);
            *out = kept.release();
        }
    });
}
