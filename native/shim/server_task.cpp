// One completion between its prompt and its end: text, stop conditions, counters. Engine thread.
#include "server_task.hpp"

#include "server_payload.hpp"

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

static void prime_sampler(pyggml_task & task) {
    common_sampler_reset(task.sampler.get());
    for (const llama_token t : task.tokens) {
        common_sampler_accept(task.sampler.get(), t, false);
    }
    task.primed = true;
}

static void count_token(pyggml_task & task) {
    task.stats.n_gen += 1;
    if (task.stats.n_gen == 1) {
        task.stats.update_prompt_last();
    }
}

static std::string token_event(pyggml_task & task, const completion_token_output & out) {
    token_payload p;
    p.content               = out.text_to_send;
    p.token                 = out.tok;
    p.id_slot               = task.id_slot;
    p.n_decoded             = int32_t(task.stats.n_gen);
    p.n_prompt_tokens       = int32_t(task.tokens.size());
    p.n_prompt_tokens_cache = int32_t(task.stats.n_prompt_cached);
    if (task.stop != STOP_TYPE_NONE || task.params.timings_per_token) {
        p.stats = task.stats;
    }
    if (task.params.sampling.n_probs > 0) {
        p.probs = out;
    }
    return payload_write(payload_kind::token, p);
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
    const bool complete = append_text(task, piece, is_eog, out.text_to_send);
    if (!complete) {
        out.text_to_send = piece; // as llama-server: not sent, but looked at for a new line
    }
    if (complete) {
        if (task.params.sampling.n_probs > 0) {
            task.probs.push_back(out);
        }
        if (task.params.stream) {
            result.payloads.push_back(token_event(task, out));
        }
    }
    check_limits(task, out.text_to_send, n_past);
    if (is_eog) {
        stop_with(task, STOP_TYPE_EOS);
    }
}

void pyggml_task_sample(pyggml_task & task, llama_context * ctx, int32_t i_batch, int32_t n_past,
                        pyggml_row_result & result) {
    if (!task.primed) {
        prime_sampler(task);
    }
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

void pyggml_task_take(pyggml_task & task, const llama_tokens & tokens, int32_t n_past, pyggml_row_result & result) {
    result.tokens = tokens;
    task.stats.update_gen_last();
    for (size_t i = 0; i < tokens.size() && task.has_next; ++i) {
        completion_token_output out;
        out.tok  = tokens[i];
        out.prob = 1.0f; // as in llama-server, whose verified tokens have no probabilities
        count_token(task);
        take_token(task, out, n_past, result);
    }
}

// -- entry points ----------------------------------------------------------------------------------------------------

extern "C" void pyggml_task_get_info(const pyggml_task * task, pyggml_task_info * out) {
    const task_params & params = task->params;
    out->tokens                = task->tokens.data();
    out->n_tokens              = int32_t(task->tokens.size());
    out->params_json           = task->params_json.c_str();
    out->completion_id         = params.oaicompat_cmpl_id.c_str();
    out->id_slot               = task->id_slot_wanted;
    out->i_parent              = task->i_parent;
    out->n_children            = task->n_children;
    out->n_predict             = params.n_predict;
    out->n_keep                = params.n_keep;
    out->n_discard             = params.n_discard;
    out->n_cache_reuse         = params.n_cache_reuse;
    out->user_starts           = task->user_starts.data();
    out->n_user_starts         = int32_t(task->user_starts.size());
    out->stream                = params.stream;
    out->return_progress       = params.return_progress;
    out->cache_prompt          = params.cache_prompt;
    out->embeds                = task->embeds();
    out->is_whole              = pyggml_task_is_whole(*task);
    out->scales                = task->scales.data();
    out->base_scales           = task->base_scales.data();
    out->n_scales              = int32_t(task->scales.size());
    out->scales_from           = task->scales_from;
}

// Samples on the device where the request wants it; else takes away the sampler that --backend-sampling gave the
// sequence when the context was made, which knows nothing of this request.
static void choose_where_to_sample(pyggml_task & task) {
    const auto & sampling   = task.params.sampling;
    const bool   wants_raw  = sampling.n_probs > 0 && !task.params.post_sampling_probs; // only the CPU still has them
    const bool   on_device  = sampling.backend_sampling && !wants_raw && task.sampler;
    auto *       sampler    = on_device ? common_sampler_get(task.sampler.get()) : nullptr;
    if (on_device && !task.primed) {
        prime_sampler(task); // before the decode that samples
    }
    task.samples_on_device  = llama_set_sampler(task.server->ctx, task.id_slot, sampler) && on_device;
}

extern "C" void pyggml_task_free(pyggml_task * task) {
    if (task->samples_on_device) {
        llama_set_sampler(task->server->ctx, task->id_slot, nullptr); // it ends with the task
    }
    delete task;
}

extern "C" void pyggml_task_start(pyggml_task * task, int32_t id_slot, int32_t n_ctx, int32_t n_cached) {
    task->id_slot = id_slot;
    task->n_ctx   = n_ctx;
    choose_where_to_sample(*task);
    if (task->stats.t_start == 0) {
        task->stats.update_prompt_start();
    }
    task->stats.n_prompt_cached    = uint64_t(n_cached);
    task->stats.n_prompt_processed = 0;
}

extern "C" void pyggml_task_add_pause(pyggml_task * task, int64_t pause_us) {
    server_slot_stats & stats = task->stats;
    if (stats.t_start > 0) {
        stats.t_start += pause_us;
    }
    if (stats.t_prompt_last > 0) {
        stats.t_prompt_last += pause_us;
    }
    if (stats.t_gen_last > 0) {
        stats.t_gen_last += pause_us;
    }
}

extern "C" void pyggml_task_note_shift(pyggml_task * task, int32_t n_keep, int32_t n_discard) {
    task->truncated = true;
    auto & held     = task->draft.held;
    if (int64_t(held.size()) >= int64_t(n_keep) + n_discard) {
        held.erase(held.begin() + n_keep, held.begin() + n_keep + n_discard);
    }
}

extern "C" int pyggml_task_end_reasoning(pyggml_task * task, int32_t * is_armed, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        *is_armed = task->params.sampling.reasoning_control;
        if (*is_armed) {
            common_sampler_reasoning_budget_force(task->sampler.get());
        }
    });
}

extern "C" void pyggml_task_get_stats(const pyggml_task * task, pyggml_task_stats * out) {
    const server_slot_stats & stats = task->stats;
    out->n_prompt_cached            = int64_t(stats.n_prompt_cached);
    out->n_prompt_processed         = int64_t(stats.n_prompt_processed);
    out->n_gen                      = int64_t(stats.n_gen);
    out->n_gen_steps                = int64_t(stats.n_gen_steps());
    out->t_prompt_us                = int64_t(stats.t_prompt_ms() * 1000.0);
    out->t_gen_us                   = stats.t_gen_us();
    out->has_next_token             = task->has_next;
    out->has_new_line               = task->has_new_line;
    out->n_draft_tokens             = int64_t(stats.n_draft_tokens);
    out->n_draft_accepted           = int64_t(stats.n_draft_accepted);
    out->n_draft_verif_steps        = int64_t(stats.n_draft_verif_steps);
    out->n_accepted_per_pos         = task->draft.n_accepted_per_pos.data();
    out->n_draft_positions          = int32_t(task->draft.n_accepted_per_pos.size());
}

extern "C" int pyggml_task_progress(const pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        token_payload p;
        p.id_slot               = task->id_slot;
        p.n_decoded             = 0; // llama-server reports before it samples, we do after the step
        p.n_prompt_tokens       = int32_t(task->tokens.size());
        p.n_prompt_tokens_cache = int32_t(task->stats.n_prompt_cached);
        p.progress.total        = int32_t(task->tokens.size());
        p.progress.cache        = int32_t(task->stats.n_prompt_cached);
        p.progress.processed    = n_past;
        p.progress.time_ms      = task->stats.t_elapsed_us() / 1000;
        if (task->params.timings_per_token) {
            p.stats = task->stats;
        }
        pyggml_bytes_assign(out, payload_write(payload_kind::progress, p));
    });
}

// Without the tokens of the stop string, as far as it is made of whole tokens.
static std::vector<completion_token_output> final_probs(const pyggml_task & task) {
    auto probs = task.probs;
    if (!task.params.stream && task.stop == STOP_TYPE_WORD) {
        const auto tokens = common_tokenize(task.server->vocab, task.stopping_word, false);
        probs.resize(probs.size() - std::min(probs.size(), tokens.size()));
    }
    return probs;
}

extern "C" int pyggml_task_final(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (task->embeds()) {
            pyggml_bytes_assign(out, pyggml_embedding_payload(*task));
            return;
        }
        final_payload p;
        if (!task->params.stream) {
            p.content = task->text;
            p.tokens  = task->generated;
        }
        p.id_slot               = task->id_slot;
        p.n_decoded             = int32_t(task->stats.n_gen);
        p.n_prompt_tokens       = int32_t(task->tokens.size());
        p.n_prompt_tokens_cache = int32_t(task->stats.n_prompt_cached);
        p.n_tokens_cached       = n_past;
        p.stats                 = task->stats;
        p.truncated             = task->truncated;
        p.has_new_line          = task->has_new_line;
        p.stop                  = task->stop;
        p.stopping_word         = task->stopping_word;
        if (task->params.sampling.n_probs > 0) {
            p.probs = final_probs(*task);
        }
        pyggml_bytes_assign(out, payload_write(payload_kind::final, p));
    });
}
