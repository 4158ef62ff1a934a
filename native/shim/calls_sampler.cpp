// Sampler chains: see calls.h. Sampling is spelled out here, so that what llama_sampler_sample would assert (no logits,
// nothing selected, a grammar that allows nothing) is an error instead.
#include "budget.hpp"
#include "call_guard.hpp"
#include "calls.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace {

// Takes `stage` over. NULL: its constructor refused the arguments and logged why.
int add_stage(pyggml_error * err, struct llama_sampler * chain, struct llama_sampler * stage, const char * what) {
    if (stage == nullptr) {
        return pyggml_fail_with_log(err, PYGGML_E_INVALID, what);
    }
    llama_sampler_chain_add(chain, stage);
    return PYGGML_OK;
}

// A grammar aborts the process when it is given an end token too early: ask it first, with apply(), which only looks.
bool grammars_allow(struct llama_sampler * chain, llama_token token) {
    for (int32_t i = 0; i < llama_sampler_chain_n(chain); ++i) {
        struct llama_sampler * stage = llama_sampler_chain_get(chain, i);
        if (strcmp(llama_sampler_name(stage), "grammar") != 0) {
            continue;
        }
        llama_token_data       one  = { token, 0.0f, 0.0f };
        llama_token_data_array only = { &one, 1, -1, false };
        llama_sampler_apply(stage, &only);
        if (std::isinf(one.logit)) {
            return false;
        }
    }
    return true;
}

int accept(pyggml_error * err, struct llama_sampler * chain, llama_token token) {
    if (!grammars_allow(chain, token)) {
        const std::string what = "the grammar does not allow token " + std::to_string(token) + " here";
        return pyggml_fail(err, PYGGML_E_INVALID, what.c_str());
    }
    llama_sampler_accept(chain, token);
    return PYGGML_OK;
}

int sample(pyggml_error * err, struct llama_sampler * chain, struct llama_context * ctx, int32_t i,
           llama_token * token) {
    const float * logits = llama_get_logits_ith(ctx, i);
    if (logits == nullptr) {
        return pyggml_fail_with_log(err, PYGGML_E_INVALID, "no logits at this index");
    }
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));

    static thread_local std::vector<llama_token_data> candidates; // kept: one allocation per thread, not per token
    candidates.resize(n_vocab);
    for (llama_token id = 0; id < n_vocab; ++id) {
        candidates[id] = { id, logits[id], 0.0f };
    }
    llama_token_data_array all = { candidates.data(), candidates.size(), -1, false };
    llama_sampler_apply(chain, &all);
    if (all.selected < 0 || all.selected >= (int64_t) all.size) {
        return pyggml_fail(err, PYGGML_E_INVALID, "the chain selected no token: end it with greedy() or dist()");
    }
    const llama_token_data chosen = all.data[all.selected];
    if (std::isinf(chosen.logit) && chosen.logit < 0) {
        return pyggml_fail(err, PYGGML_E_INVALID, "no token is left: the grammar or a bias excludes them all");
    }
    *token = chosen.id;
    return accept(err, chain, chosen.id);
}

} // namespace

extern "C" {

int pyggml_sampler_chain(struct llama_sampler ** out, pyggml_error * err) {
    return pyggml_call(err, [&] { *out = llama_sampler_chain_init(llama_sampler_chain_default_params()); });
}

int pyggml_sampler_add_greedy(struct llama_sampler * chain, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_greedy(), "greedy"); });
}

int pyggml_sampler_add_dist(struct llama_sampler * chain, uint32_t seed, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_dist(seed), "dist"); });
}

int pyggml_sampler_add_temp(struct llama_sampler * chain, float temperature, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_temp(temperature), "temp"); });
}

int pyggml_sampler_add_top_k(struct llama_sampler * chain, int32_t k, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_top_k(k), "top_k"); });
}

int pyggml_sampler_add_top_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_top_p(p, min_keep), "top_p"); });
}

int pyggml_sampler_add_min_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err) {
    return pyggml_call(err, [&] { return add_stage(err, chain, llama_sampler_init_min_p(p, min_keep), "min_p"); });
}

int pyggml_sampler_add_penalties(struct llama_sampler * chain, int32_t n_vocab, int32_t last_n, float repeat,
                                 float frequency, float presence, pyggml_error * err) {
    return pyggml_call(err, [&] {
        auto * stage = llama_sampler_init_penalties(n_vocab, last_n, repeat, frequency, presence);
        return add_stage(err, chain, stage, "penalties");
    });
}

int pyggml_sampler_add_grammar(struct llama_sampler * chain, const struct llama_vocab * vocab, const char * grammar,
                               const char * root, pyggml_error * err) {
    return pyggml_call(err, [&] {
        struct llama_sampler * stage    = nullptr;
        const char *           exceeded = nullptr;
        try {
            pyggml_budget budget(pyggml_limits_for_grammar());
            stage    = llama_sampler_init_grammar(vocab, grammar, root);
            exceeded = budget.exceeded(); // the parser may have caught and logged it
        } catch (const pyggml_budget_exceeded & e) {
            exceeded = e.what();
        }
        if (stage == nullptr && exceeded != nullptr) {
            return pyggml_fail(err, PYGGML_E_INVALID, exceeded);
        }
        return add_stage(err, chain, stage, "cannot parse the grammar");
    });
}

int pyggml_sampler_add_logit_bias(struct llama_sampler * chain, int32_t n_vocab, int32_t n,
                                  const llama_logit_bias * bias, pyggml_error * err) {
    return pyggml_call(err, [&] {
        return add_stage(err, chain, llama_sampler_init_logit_bias(n_vocab, n, bias), "logit_bias");
    });
}

int pyggml_sampler_clone(const struct llama_sampler * chain, struct llama_sampler ** out, pyggml_error * err) {
    return pyggml_call(err, [&] { *out = llama_sampler_clone(chain); });
}

int pyggml_sampler_reset(struct llama_sampler * chain, pyggml_error * err) {
    return pyggml_call(err, [&] { llama_sampler_reset(chain); });
}

int pyggml_sampler_accept(struct llama_sampler * chain, llama_token token, pyggml_error * err) {
    return pyggml_call(err, [&] { return accept(err, chain, token); });
}

int pyggml_sampler_sample(struct llama_sampler * chain, struct llama_context * ctx, int32_t i, llama_token * token,
                          pyggml_error * err) {
    return pyggml_call(err, [&] { return sample(err, chain, ctx, i, token); });
}

} // extern "C"
