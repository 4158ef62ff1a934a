// One completion from its start to its end: what it wants, its counters, its last words. Engine thread.
#include "server_task.hpp"

#include "server_payload.hpp"

#include <algorithm>

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
    if (on_device) {
        pyggml_task_prime(task); // before the decode that samples
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

pyggml_token_event pyggml_progress_event(const pyggml_task & task, int32_t n_past) {
    pyggml_token_event p;
    p.n_decoded             = 0; // llama-server reports before it samples, we do after the step
    p.n_prompt_tokens       = int32_t(task.tokens.size());
    p.n_prompt_tokens_cache = int32_t(task.stats.n_prompt_cached);
    p.progress.emplace();
    p.progress->total       = int32_t(task.tokens.size());
    p.progress->cache       = int32_t(task.stats.n_prompt_cached);
    p.progress->processed   = n_past;
    p.progress->time_ms     = task.stats.t_elapsed_us() / 1000;
    if (task.params.timings_per_token) {
        p.stats = task.stats;
    }
    return p;
}

extern "C" int pyggml_task_progress(pyggml_task * task, int32_t n_past, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        pyggml_bytes_assign(out, pyggml_format_event(*task->formatter, pyggml_progress_event(*task, n_past)));
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
        if (!task->format_failure.empty()) {
            throw std::runtime_error(task->format_failure);
        }
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
