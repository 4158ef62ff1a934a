// The objects behind server.h. Internal to the shim.
#pragma once

#include "row_pool.hpp"
#include "server.h"
#include "server_answer.hpp"
#include "server_draft.hpp"

#include "server-chat.h"
#include "server-common.h"
#include "server-schema.h"
#include "server-task.h"

#include "arg.h"
#include "common.h"
#include "sampling.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

struct pyggml_media_prompt;

// What the event of a token, or of a report on the prompt, says.
struct pyggml_token_event {
    std::string             content;
    llama_token             token                 = 0; // none in a report
    int32_t                 n_decoded             = 0;
    int32_t                 n_prompt_tokens       = 0;
    int32_t                 n_prompt_tokens_cache = 0;
    server_slot_stats       stats                 = {};
    completion_token_output probs                 = {};
    std::optional<result_prompt_progress> progress; // a report on the prompt
};

// What a step gave for one row.
struct pyggml_row_result {
    llama_tokens                    tokens;
    std::vector<pyggml_token_event> events; // of a streamed task, until they are `text`
    std::string                     text;   // server-sent events; of a row that failed: the message
    pyggml_verified                 verified; // of a row with guesses, until they are settled
    int32_t                         failed = 0; // as in pyggml_sampled
};

// The batch that was decoded last, and its rows.
struct pyggml_decoded {
    std::vector<llama_token>  token;
    std::vector<llama_pos>    pos;
    std::vector<llama_seq_id> seq_id;
    std::vector<int8_t>       output;
    std::vector<pyggml_row>   rows;

    pyggml_batch_view view() const {
        return { int32_t(token.size()), token.data(), pos.data(), seq_id.data(), output.data() };
    }
    void add(llama_token t, llama_pos p, llama_seq_id s, int8_t wants_output) {
        token.push_back(t);
        pos.push_back(p);
        seq_id.push_back(s);
        output.push_back(wants_output);
    }
};

struct pyggml_args {
    common_params                        params;
    std::optional<common_models_handler> files;                  // which files its models are, once that is known
    bool                                 are_files_here = false; // they are in their places, `params` names them
};

struct pyggml_server {
    common_params          params; // as loading changed it
    common_init_result_ptr init;
    llama_model *          model = nullptr;
    llama_context *        ctx   = nullptr;
    const llama_vocab *    vocab = nullptr;
    server_chat_params     chat_params;
    mtmd::context_ptr      media; // NULL without --mmproj. Uses `init`, so it goes first.
    mtmd_helper_init_opt   init_opt = mtmd_helper_init_opt_default();
    std::string            model_name;
    common_json            ui_settings = common_json::object();
    bool                   needs_checkpoints = false; // part of the memory cannot be rolled back
    std::unique_ptr<pyggml_drafter> drafter; // NULL: no speculative decoding. Uses `init`, so it goes first.
    common_context_seq_rm_type      rm_type = COMMON_CONTEXT_SEQ_RM_TYPE_NO;
    pyggml_decoded                  decoded;
    std::vector<pyggml_row_result>  step_results; // what pyggml_sampled points to
    std::unique_ptr<pyggml_row_pool> row_pool;

    // The LoRA adapters and the scales for tasks that name none; translations read them while others change them.
    mutable std::mutex                            adapters_mutex;
    mutable std::vector<common_adapter_lora_info> adapters;

    int32_t n_ctx_slot() const;
};

// Tasks that want an embedding or a score of their prompt, and no text.
inline bool pyggml_embeds(server_task_type type) {
    return type == SERVER_TASK_TYPE_EMBEDDING || type == SERVER_TASK_TYPE_RERANK;
}

struct pyggml_formatter;

struct pyggml_task {
    std::shared_ptr<pyggml_formatter> formatter; // its request's, too
    std::string           format_failure; // why its events could not be made: its next step fails
    const pyggml_server * server = nullptr;
    server_task_type      type   = SERVER_TASK_TYPE_COMPLETION;
    task_params           params;
    llama_tokens          tokens; // LLAMA_TOKEN_NULL where they are of an image
    std::vector<int32_t>  user_starts; // places in the prompt at which a message of the user begins
    std::shared_ptr<pyggml_media_prompt> media; // NULL without images
    std::string           params_json;
    int32_t               id_slot_wanted = -1;
    int32_t               index          = 0;
    int32_t               i_parent       = -1; // of the tasks of its request
    int32_t               n_children     = 0;

    common_sampler_ptr sampler;
    bool               primed = false; // the sampler has seen the prompt
    bool               samples_on_device = false; // the context uses the sampler
    llama_token        last   = LLAMA_TOKEN_NULL; // sampled, and in no cell yet
    pyggml_task_draft  draft;

    int32_t           id_slot = -1;
    int32_t           n_ctx   = 0;
    server_slot_stats stats   = {};

    std::string                          text;
    llama_tokens                         generated;
    std::vector<completion_token_output> probs;
    size_t                               n_sent      = 0; // bytes of `text` that were handed out
    size_t                               last_nl_pos = 0;
    bool                                 has_new_line = false;
    bool                                 truncated    = false;
    bool                                 has_next     = true;
    stop_type                            stop         = STOP_TYPE_NONE;
    std::string                          stopping_word;

    std::vector<std::vector<float>> embedding; // of the whole prompt, or of each token without pooling
    float                           score = -1e6; // of a reranked document

    // The LoRA adapters for its tokens from `scales_from` on, and for those before.
    std::vector<common_adapter_lora_info> adapters;
    std::vector<common_adapter_lora_info> base_adapters;
    std::vector<float>                    scales;
    std::vector<float>                    base_scales;
    int32_t                               scales_from = 0;

    bool embeds() const { return pyggml_embeds(type); }
    bool ctx_shift() const { return server->params.ctx_shift; }
};

// Makes text of what one task says, in its order. The engine formats the events of tokens, and the request what ends
// the answer: whoever formats holds `mutex`.
struct pyggml_formatter {
    std::mutex        mutex;
    task_params       params;
    int64_t           created_s = 0;
    llama_tokens      prompt;
    task_result_state state;
    int32_t           index;
    bool              shares_prompt = false; // with the task before it (n > 1)
    bool              has_begun     = false; // a token's event was made
    common_chat_msg   prefilled; // the beginning of the answer that came with the request, which is not repeated
    std::shared_ptr<const common_json> body; // of the request, which `answer` reads
    std::unique_ptr<pyggml_answer> answer; // of the APIs whose streams have frames
    pyggml_call_order              calls;  // in it

    pyggml_formatter(const task_params & params, const llama_tokens & prompt, int32_t index) :
        params(params), prompt(prompt), state(params.chat_parser_params), index(index), prefilled(state.chat_msg) {}
};

// What all answers of one request took.
struct pyggml_usage {
    int64_t n_prompt     = 0;
    int64_t n_cached     = 0;
    int64_t n_completion = 0;
    int32_t n_finished   = 0; // answers
};

struct pyggml_request {
    const pyggml_server *                          server = nullptr;
    server_task_type                               type   = SERVER_TASK_TYPE_COMPLETION;
    std::shared_ptr<common_json> body = std::make_shared<common_json>(); // as it came; of chats, embeddings, reranking
    std::vector<std::string>                       documents; // to be reranked
    bool                                           stream = false;
    task_response_type                             res_type = TASK_RESPONSE_TYPE_NONE;
    int32_t                                        sse_ping_interval_s = 30;
    int64_t                                        created_s = 0;
    pyggml_usage                                   usage;
    std::vector<std::unique_ptr<pyggml_task>>      tasks;
    std::vector<std::shared_ptr<pyggml_formatter>> formatters;
};

// The older two of OpenAI's APIs: one answer with many choices, streams that end with [DONE].
inline bool pyggml_is_openai(task_response_type type) {
    return type == TASK_RESPONSE_TYPE_OAI_CHAT || type == TASK_RESPONSE_TYPE_OAI_CMPL;
}

// The server-sent events of a token or of a report on the prompt; may be empty. Any thread. Throws what the parsers of
// the text throw, and pyggml_budget_exceeded.
std::string pyggml_format_event(pyggml_formatter & formatter, const pyggml_token_event & event);

// Copies into memory that pyggml_bytes_free releases. Throws std::bad_alloc.
void pyggml_bytes_assign(pyggml_bytes * out, const std::string & text);

// Why there is no context, given what llama.cpp said of it, and what to do where memory is short.
std::string pyggml_why_no_context(const std::string & said, const common_params & params);
