// The next token of a completion: sampled, turned into text, checked against stop strings and limits. Engine thread.
#include "server_task.hpp"

#include <algorithm>

// -- text ------------------------------------------------------------------------------------------------------------

struct stop_match {
    size_t              at   = std::string::npos;
    const std::string * word = nullptr;
};

// The earliest stop string in `text`, looking only where the last `n_new` bytes can have completed one.
static stop_match find_stop(const std::vector<std::string> & words, const std::string & text, size_t n_new) {
    stop_match best;
    for (const std::string & word : words) {
        const size_t reach = word.size() + n_new;
        const size_t at    = text.find(word, text.size() > reach ? text.size() - reach : 0);
        if (at != std::string::npos && (best.word == nullptr || at < best.at)) {
            best = { at, &word };
        }
    }
    return best;
}

// True where the end of `text` may be the beginning of a stop string.
static bool may_become_stop(const std::vector<std::string> & words, const std::string & text) {
    return std::any_of(words.begin(), words.end(), [&](const std::string & word) {
        return string_find_partial_stop(text, word) != std::string::npos;
    });
}

static void stop_with(pyggml_task & task, stop_type why) {
    task.stop     = why;
    task.has_next = false;
}

// The text that is ready is all of it: nothing more comes that it could be the beginning of.
static std::string take_held_back(pyggml_task & task) {
    const std::string rest = task.text.substr(std::min(task.n_sent, task.text.size()));
    task.n_sent += rest.size();
    return rest;
}

// Appends the piece; returns the text that may be handed out now, or nothing while a character is incomplete.
static bool append_text(pyggml_task & task, const std::string & piece, bool is_eog, std::string & ready) {
    task.text += piece;
    if (validate_utf8(task.text) < task.text.size()) {
        return false;
    }
    size_t            from    = std::min(task.n_sent, task.text.size());
    const std::string pending = task.text.substr(from);
    const stop_match  match   = find_stop(task.params.antiprompt, pending, piece.size());
    if (match.word != nullptr) {
        stop_with(task, STOP_TYPE_WORD);
        task.stopping_word = *match.word;
        task.text.erase(from + match.at);
        from = std::min(task.n_sent, task.text.size());
    } else if (!is_eog && may_become_stop(task.params.antiprompt, pending)) {
        ready.clear();
        return true;
    }
    ready = task.text.substr(from);
    task.n_sent += ready.size();
    return true;
}

// -- limits ----------------------------------------------------------------------------------------------------------

// Ends the text where a new line is indented less than the request wants.
static void check_indent(pyggml_task & task) {
    if (task.params.n_indent > 0 && task.last_nl_pos > 0) {
        const size_t end  = task.text.find_first_not_of(" \t", task.last_nl_pos);
        const size_t stop = std::min(end, task.text.size());
        if (stop < task.text.size() && int32_t(stop - task.last_nl_pos) < task.params.n_indent) {
            stop_with(task, STOP_TYPE_LIMIT);
            task.text.erase(stop);
        }
    }
    const size_t nl = task.text.find('\n', task.last_nl_pos);
    if (nl != std::string::npos) {
        task.last_nl_pos = nl + 1;
    }
}

static void check_limits(pyggml_task & task, const std::string & ready, int32_t n_past) {
    if (!task.ctx_shift() && n_past + 1 >= task.n_ctx) {
        task.truncated = true;
        stop_with(task, STOP_TYPE_LIMIT);
    }
    const int32_t limit = task.params.n_predict;
    if (task.has_next && limit != -1 && int64_t(task.stats.n_gen) >= limit) {
        stop_with(task, STOP_TYPE_LIMIT);
    }
    if (task.has_new_line) {
        check_indent(task);
    }
    if (ready.find('\n') != std::string::npos) {
        task.has_new_line = true;
        const int64_t max_ms = task.params.t_max_predict_ms;
        if (max_ms > 0 && task.stats.t_gen_ms() > double(max_ms)) {
            stop_with(task, STOP_TYPE_LIMIT);
        }
    }
}

// -- probabilities ---------------------------------------------------------------------------------------------------

static void add_probs(pyggml_task & task, llama_context * ctx, int32_t i_batch, completion_token_output & out) {
    const bool   special  = task.server->params.special;
    const size_t n_wanted = size_t(task.params.sampling.n_probs);
    const auto   add      = [&](const llama_token_data & d) {
        out.probs.push_back({ d.id, common_token_to_piece(task.server->vocab, d.id, special), d.p });
    };
    const auto own_p = [&](const llama_token_data * data, size_t n) {
        const auto * it = std::find_if(data, data + n, [&](const auto & d) { return d.id == out.tok; });
        if (it != data + n) {
            out.prob = it->p;
        }
    };
    if (task.params.post_sampling_probs) {
        const auto * cur = common_sampler_get_candidates(task.sampler.get(), true);
        own_p(cur->data, cur->size);
        for (size_t i = 0; i < std::min(cur->size, n_wanted) && cur->data[i].p != 0.0f; ++i) {
            add(cur->data[i]);
        }
    } else {
        const auto cur = get_token_probabilities(ctx, i_batch, n_wanted);
        own_p(cur.data(), cur.size());
        for (size_t i = 0; i < std::min(cur.size(), n_wanted); ++i) {
            add(cur[i]);
        }
    }
}

// -- one token -------------------------------------------------------------------------------------------------------

void pyggml_task_prime(pyggml_task & task) {
    if (task.primed) {
        return;
    }
    common_sampler_reset(task.sampler.get());
    for (const llama_token t : task.tokens) {
        if (t != LLAMA_TOKEN_NULL) { // of an image
            common_sampler_accept(task.sampler.get(), t, false);
        }
    }
    task.primed = true;
}

static void count_token(pyggml_task & task) {
    task.stats.n_gen += 1;
    if (task.stats.n_gen == 1) {
        task.stats.update_prompt_last();
    }
}

static pyggml_token_event token_event(const pyggml_task & task, const completion_token_output & out, bool with_stats) {
    pyggml_token_event p;
    p.content               = out.text_to_send;
    p.token                 = out.tok;
    p.n_decoded             = int32_t(task.stats.n_gen);
    p.n_prompt_tokens       = int32_t(task.tokens.size());
    p.n_prompt_tokens_cache = int32_t(task.stats.n_prompt_cached);
    if (with_stats || task.params.timings_per_token) {
        p.stats = task.stats;
    }
    if (task.params.sampling.n_probs > 0) {
        p.probs = out;
    }
    return p;
}

// The token becomes text: what of it may be handed out, and whether the task ends with it.
static void take_token(pyggml_task & task, completion_token_output & out, int32_t n_past, pyggml_row_result & result) {
    const common_params & params    = task.server->params;
    const auto &          preserved = task.params.sampling.preserved_tokens;
    const llama_token     id        = out.tok;
    const bool            is_eog    = llama_vocab_is_eog(task.server->vocab, id);
    const std::string     piece =
        common_token_to_piece(task.server->vocab, id, params.special || preserved.count(id) > 0);
    task.last = id;
    if (task.params.return_tokens) {
        task.generated.push_back(id);
    }
    bool       complete     = append_text(task, piece, is_eog, out.text_to_send);
    const bool ends_in_word = task.stop != STOP_TYPE_NONE;
    check_limits(task, complete ? out.text_to_send : piece, n_past); // as llama-server looks for a new line
    if (is_eog) {
        stop_with(task, STOP_TYPE_EOS);
    }
    if (!task.has_next) {
        out.text_to_send = (complete ? out.text_to_send : std::string()) + take_held_back(task);
        complete         = complete || !out.text_to_send.empty();
    }
    if (complete) {
        if (task.params.sampling.n_probs > 0) {
            task.probs.push_back(out);
        }
        if (task.params.stream) {
            result.events.push_back(token_event(task, out, ends_in_word));
        }
    }
}

void pyggml_task_sample(pyggml_task & task, llama_context * ctx, int32_t i_batch, int32_t n_past,
                        pyggml_row_result & result) {
    if (task.params.n_predict == 0) { // only the prompt was wanted
        task.stats.update_prompt_last();
        stop_with(task, STOP_TYPE_LIMIT);
        return;
    }
    pyggml_task_prime(task);
    completion_token_output out;
    out.tok  = common_sampler_sample(task.sampler.get(), ctx, i_batch);
    out.prob = 1.0f;
    common_sampler_accept(task.sampler.get(), out.tok, true);
    count_token(task);
    task.stats.update_gen_last();
    if (task.params.sampling.n_probs > 0) {
        add_probs(task, ctx, i_batch, out);
    }
    result.tokens.push_back(out.tok);
    take_token(task, out, n_past, result);
}

void pyggml_task_take(pyggml_task & task, llama_context * ctx, int32_t i_batch, const llama_tokens & tokens,
                      int32_t n_past, pyggml_row_result & result) {
    result.tokens = tokens;
    task.stats.update_gen_last();
    for (size_t i = 0; i < tokens.size() && task.has_next; ++i) {
        completion_token_output out;
        out.tok  = tokens[i];
        out.prob = 1.0f;
        count_token(task);
        if (task.params.sampling.n_probs > 0) {
            add_probs(task, ctx, i_batch + int32_t(i), out);
        }
        take_token(task, out, n_past, result);
    }
}
