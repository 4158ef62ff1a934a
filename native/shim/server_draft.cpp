// Guessing ahead and verifying, step by step. Engine thread.
#include "server_draft.hpp"
#include "server_media.hpp"
#include "server_types.hpp"

#include <algorithm>
#include <stdexcept>

static const llama_state_seq_flags CHECKPOINT_FLAGS = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;

// Whether the context cannot just remove `n_tokens` from a sequence's end, so that it goes back to a checkpoint.
bool pyggml_drafter::goes_back(common_context_seq_rm_type type, llama_context * ctx, size_t n_tokens) const {
    return type == COMMON_CONTEXT_SEQ_RM_TYPE_FULL ||
           (type == COMMON_CONTEXT_SEQ_RM_TYPE_RS && n_tokens > llama_n_rs_seq(ctx));
}

void pyggml_drafter::enter(pyggml_task & task) {
    if (task.stats.n_gen == 0) {
        task.draft.held        = task.media ? task.media->tokens.get_text_tokens() : task.tokens;
        task.draft.n_media_pos = task.media ? task.media->n_pos() : 0;
        common_speculative_begin(spec.get(), task.id_slot, task.draft.held);
        if (!common_speculative_get_synth_probs(spec.get()).empty()) {
            const uint32_t seed = task.params.sampling.seed;
            task.draft.synth_rng.seed(seed == LLAMA_DEFAULT_SEED ? std::random_device{}() : seed);
        }
    } else if (task.draft.tokens.empty()) {
        task.draft.held.push_back(task.last); // with guesses, `verify` knows what is kept
    }
}

std::vector<uint8_t> pyggml_drafter::state(llama_seq_id seq_id) const {
    std::vector<uint8_t> data;
    common_speculative_get_state(spec.get(), seq_id, data);
    return data;
}

void pyggml_drafter::set_state(llama_seq_id seq_id, const std::vector<uint8_t> & data) {
    common_speculative_set_state(spec.get(), seq_id, data);
}

// -- guessing --------------------------------------------------------------------------------------------------------

// What a sequence must be put back to, if its guesses turn out wrong and its context cannot drop them.
void pyggml_drafter::remember_before(pyggml_task & task) {
    pyggml_task_draft & draft = task.draft;
    llama_memory_t      mem   = llama_get_memory(ctx_tgt);
    draft.before.update_pos(int64_t(draft.held.size()), llama_memory_seq_pos_min(mem, task.id_slot),
                            llama_memory_seq_pos_max(mem, task.id_slot));
    if (rm_dft == COMMON_CONTEXT_SEQ_RM_TYPE_FULL) {
        draft.before.update_dft(ctx_dft, task.id_slot, CHECKPOINT_FLAGS);
    }
}

// The draft model has run ahead of the target: take it back to where the target is.
static void rewind_draft_context(llama_context * ctx, const pyggml_task & task, bool from_checkpoint) {
    if (from_checkpoint) {
        task.draft.before.load_dft(ctx, task.id_slot, CHECKPOINT_FLAGS);
    }
    if (!llama_memory_seq_rm(llama_get_memory(ctx), task.id_slot, task.draft.before.pos_max + 1, -1)) {
        throw std::runtime_error("the draft model's context cannot remove the tail of sequence " +
                                 std::to_string(task.id_slot));
    }
}

// Guesses that wait to be verified again, cut to what may be decoded now: the rest is the target's to say again.
static void shorten(pyggml_task_draft & draft, int32_t n_max) {
    if (draft.tokens.size() > size_t(std::max(0, n_max))) {
        draft.tokens.resize(size_t(std::max(0, n_max)));
        draft.is_replay = false; // the last of them, which was no guess, is among what is cut off
    }
}

// Probabilities as the samplers leave them are those of the token sampled last: such a task takes one token at a time.
static bool takes_no_guesses(const pyggml_task & task) {
    return task.params.sampling.n_probs > 0 && task.params.post_sampling_probs;
}

void pyggml_drafter::draft(pyggml_task * const * tasks, const int32_t * n_max, int32_t n) {
    for (llama_seq_id seq_id = 0; seq_id < n_seq; ++seq_id) {
        common_speculative_get_draft_params(spec.get(), seq_id).drafting = false;
    }
    std::vector<pyggml_task *> guessing;
    for (int32_t i = 0; i < n; ++i) {
        pyggml_task & task = *tasks[i];
        if (!task.draft.tokens.empty() || n_max[i] <= 0 || takes_no_guesses(task)) {
            shorten(task.draft, n_max[i]);
            continue;
        }
        remember_before(task);
        auto & wish    = common_speculative_get_draft_params(spec.get(), task.id_slot);
        wish.drafting  = true;
        wish.n_max     = n_max[i];
        wish.pos0      = task.draft.n_pos();
        wish.id_last   = task.last;
        wish.prompt    = &task.draft.held;
        wish.result    = &task.draft.tokens;
        guessing.push_back(&task);
    }
    if (guessing.empty()) {
        return;
    }
    common_speculative_draft(spec.get());
    for (pyggml_task * task : guessing) {
        const size_t n_guesses = task->draft.tokens.size();
        task->stats.n_draft_tokens += n_guesses;
        if (ctx_dft != nullptr) {
            rewind_draft_context(ctx_dft, *task, rm_dft == COMMON_CONTEXT_SEQ_RM_TYPE_FULL);
        }
        if (n_guesses > 0 && goes_back(rm_tgt, ctx_tgt, n_guesses)) {
            task->draft.before.update_tgt(ctx_tgt, task->id_slot, CHECKPOINT_FLAGS);
        }
        if (n_guesses > 0 && rm_dft == COMMON_CONTEXT_SEQ_RM_TYPE_RS && goes_back(rm_dft, ctx_dft, n_guesses)) {
            task->draft.before.update_dft(ctx_dft, task->id_slot, CHECKPOINT_FLAGS);
        }
    }
}

// -- verifying -------------------------------------------------------------------------------------------------------

void pyggml_drafter::follow(const pyggml_batch_view & batch) {
    decoded.clear();
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        decoded.add(batch.token[i], batch.pos[i], batch.seq_id[i], batch.output[i] != 0);
    }
    if (!common_speculative_process(spec.get(), decoded)) {
        throw std::runtime_error("failed to process speculative batch");
    }
}

bool pyggml_drafter::follow_media(const mtmd_helper_embd_batch & batch) {
    common_batch  media(ctx_tgt);
    const size_t  n_embd = size_t(batch.n_embd);
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        llama_pos pos[GGML_MROPE_SECTIONS] = {};
        for (int32_t section = 0; section < batch.n_pos; ++section) {
            pos[section] = batch.pos[section * batch.n_tokens + i];
        }
        media.add_embd({ batch.embd + size_t(i) * n_embd, 1, n_embd }, pos, batch.seq_id, false);
    }
    return common_speculative_process(spec.get(), media);
}

void pyggml_drafter::cut(llama_seq_id seq_id, llama_pos from) {
    if (own_context() != nullptr) {
        llama_memory_seq_rm(llama_get_memory(own_context()), seq_id, from, -1);
    }
}

// Acceptance by chance instead of by what the target says. Only for benchmarks: the text means nothing.
static llama_tokens accept_by_chance(pyggml_task & task, llama_context * ctx, const std::vector<int32_t> & rows,
                                     const std::vector<double> & probs) {
    common_sampler *                       sampler = task.sampler.get();
    const llama_tokens &                   guesses = task.draft.tokens;
    const bool                             replay  = task.draft.is_replay;
    std::uniform_real_distribution<double> chance(0.0, 1.0);
    llama_tokens                           taken;
    for (size_t i = 0; i < guesses.size(); ++i) {
        const llama_token said = common_sampler_sample(sampler, ctx, rows[i]);
        const bool        keep = replay || (chance(task.draft.synth_rng) < probs[i] &&
                                     !llama_vocab_is_eog(task.server->vocab, guesses[i]));
        // a guess kept by chance is no text: grammar and reasoning state stay where they are
        common_sampler_accept(sampler, keep ? guesses[i] : said, !keep || (replay && i + 1 == guesses.size()));
        taken.push_back(keep ? guesses[i] : said);
        if (!keep) {
            return taken;
        }
    }
    const llama_token last = common_sampler_sample(sampler, ctx, rows.back());
    common_sampler_accept(sampler, last, true);
    taken.push_back(last);
    return taken;
}

void pyggml_drafter::go_back(pyggml_task & task, llama_tokens && accepted) {
    pyggml_task_draft & draft = task.draft;
    draft.is_replay           = true;
    draft.tokens              = std::move(accepted);
    draft.before.load_tgt(ctx_tgt, task.id_slot, CHECKPOINT_FLAGS);
    draft.before.load_dft(ctx_dft, task.id_slot, CHECKPOINT_FLAGS);
    memory.seq_rm(task.id_slot, draft.before.pos_max + 1, -1);
}

void pyggml_drafter::count_accepted(pyggml_task & task, size_t n_accepted) {
    auto & per_pos = task.draft.n_accepted_per_pos;
    per_pos.resize(size_t(n_max()), 0);
    for (size_t i = 0; i < std::min(n_accepted, per_pos.size()); ++i) {
        per_pos[i]++;
    }
    task.stats.n_draft_accepted += n_accepted;
    task.stats.n_draft_verif_steps += 1;
}

pyggml_verified pyggml_drafter::sample(pyggml_task & task, int32_t i_batch) const {
    const size_t         n_guesses = task.draft.tokens.size();
    std::vector<int32_t> rows;
    for (size_t i = 0; i <= n_guesses; ++i) {
        rows.push_back(i_batch + int32_t(i));
    }
    pyggml_verified out;
    if (goes_back(rm_tgt, ctx_tgt, n_guesses)) {
        out.before.reset(common_sampler_clone(task.sampler.get()));
    }
    const auto & probs = common_speculative_get_synth_probs(spec.get());
    out.accepted       = probs.empty() ? common_sampler_sample_and_accept_n(task.sampler.get(), ctx_tgt, rows,
                                                                            task.draft.tokens)
                                       : accept_by_chance(task, ctx_tgt, rows, probs);
    return out;
}

llama_tokens pyggml_drafter::settle(pyggml_task & task, pyggml_verified && verified) {
    pyggml_task_draft & draft    = task.draft;
    llama_tokens        accepted = std::move(verified.accepted);
    const size_t        n_wrong  = draft.tokens.size() + 1 - accepted.size();
    if (n_wrong > 0 && goes_back(rm_tgt, ctx_tgt, n_wrong)) {
        go_back(task, std::move(accepted));
        common_sampler_copy(verified.before.get(), task.sampler.get());
        return {};
    }
    common_speculative_accept(spec.get(), task.id_slot, uint16_t(accepted.size() - 1));
    // the last token of a replay was the target's own when it was accepted first
    const size_t n_accepted = accepted.size() - 1;
    count_accepted(task, draft.is_replay && n_accepted > 0 ? n_accepted - 1 : n_accepted);
    draft.is_replay = false;
    draft.tokens.clear();
    draft.held.push_back(task.last);
    draft.held.insert(draft.held.end(), accepted.begin(), accepted.end() - 1);
    memory.seq_rm(task.id_slot, draft.n_pos(), -1);
    return accepted;
}

// -- entry points ----------------------------------------------------------------------------------------------------

extern "C" int pyggml_draft(pyggml_server * server, int32_t n, pyggml_task * const * tasks, const int32_t * n_max,
                            pyggml_tokens * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (!server->drafter) {
            throw std::logic_error("nothing drafts here: no speculative decoding is in force");
        }
        server->drafter->draft(tasks, n_max, n);
        for (int32_t i = 0; i < n; ++i) {
            out[i] = { tasks[i]->draft.tokens.data(), int32_t(tasks[i]->draft.tokens.size()) };
        }
    });
}

extern "C" void pyggml_task_drop_draft(pyggml_task * task) {
    task->draft.tokens.clear();
    task->draft.is_replay = false;
}
