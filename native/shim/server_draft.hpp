// Speculative decoding: guesses at the next tokens, and which of them the target model would have said itself.
// Internal to the shim; engine thread. All kinds of guessing are llama.cpp's own (common/speculative.h).
#pragma once

#include "server.h"

#include "common.h"
#include "sampling.h"
#include "mtmd-helper.h"
#include "speculative.h"

#include <memory>
#include <random>
#include <vector>

// What a task needs to be guessed for.
struct pyggml_task_draft {
    llama_tokens             held;              // the text that its sequence holds, from the first sampled token on
    llama_pos                n_media_pos = 0;   // positions that the prompt's images and sounds take besides
    llama_tokens             tokens;            // guesses that the next decode verifies
    bool                     is_replay = false; // `tokens` were accepted once, by a context that had to go back
    common_prompt_checkpoint before;            // the sequence as it was before the guesses
    std::vector<uint64_t>    n_accepted_per_pos;
    std::mt19937             synth_rng;         // --spec-draft-synth-*: acceptance by chance, for benchmarks

    llama_pos n_pos() const { return llama_pos(held.size()) + n_media_pos; }
};

// What the target says where a task guessed.
struct pyggml_verified {
    llama_tokens       accepted;
    common_sampler_ptr before; // the sampler as it was, where the context may have to go back; else NULL
};

// The loaded means of guessing. Exists only where some are in force.
class pyggml_drafter {
  public:
    // Loads the draft model that the parameters ask for. NULL where they ask for no speculation, or (with the reason
    // logged, as in llama-server) where this model cannot. Throws std::runtime_error for a draft that does not load.
    static std::unique_ptr<pyggml_drafter> load(pyggml_server & server);

    // The draft model's context; NULL where it has none, or one without cells of its own.
    llama_context * own_context() const { return has_own_cells ? ctx_dft : nullptr; }
    int32_t         n_max() const { return common_speculative_n_max(spec.get()); }

    // What the drafter remembers of a sequence apart from cells, for a checkpoint; may be empty.
    std::vector<uint8_t> state(llama_seq_id seq_id) const;
    void                 set_state(llama_seq_id seq_id, const std::vector<uint8_t> & data);

    // Guesses up to n_max[i] tokens for each task, together; task.draft.tokens holds them. A task whose guesses wait to
    // be verified again keeps them, as far as n_max[i] allows.
    void draft(pyggml_task * const * tasks, const int32_t * n_max, int32_t n);

    // The target decoded this batch: the draft model follows. Throws std::runtime_error where it cannot.
    void follow(const pyggml_batch_view & batch);
    // So with embeddings of an image or a sound. False where it cannot.
    bool follow_media(const mtmd_helper_embd_batch & batch);
    // A sequence was cut from this position on, in the target: the draft model follows.
    void cut(llama_seq_id seq_id, llama_pos from);

    // A row of the task is about to be sampled: its first one begins it, later ones add the token that was decoded.
    void enter(pyggml_task & task);

    // Samples the rows from i_batch on, the token that the task had last and its guesses, as far as they are right. Any
    // thread, while nothing else changes the task.
    pyggml_verified sample(pyggml_task & task, int32_t i_batch) const;
    // What of that stays: the tokens that came out, at least one. None where the context could not keep a part of the
    // guesses: it is as before them then, and the part stays to be verified again.
    llama_tokens settle(pyggml_task & task, pyggml_verified && verified);

  private:
    bool goes_back(common_context_seq_rm_type type, llama_context * ctx, size_t n_tokens) const;
    void go_back(pyggml_task & task, llama_tokens && accepted);
    void remember_before(pyggml_task & task);
    void count_accepted(pyggml_task & task, size_t n_accepted);

    llama_context *                    ctx_tgt = nullptr;
    llama_context *                    ctx_dft = nullptr;
    bool                               has_own_cells = false;
    int32_t                            n_seq         = 0;
    common_context_seq_rm_type         rm_tgt = COMMON_CONTEXT_SEQ_RM_TYPE_NO;
    common_context_seq_rm_type         rm_dft = COMMON_CONTEXT_SEQ_RM_TYPE_NO;
    common_memory                      memory;
    common_speculative_init_result_ptr init; // outlives `spec`, which uses its context
    common_speculative_ptr             spec;
    common_batch                       decoded;
};
