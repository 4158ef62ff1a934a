// The answers of the APIs whose streams have events with a frame around them: Responses and Messages. Internal to the
// shim. Any thread, one at a time per request.
//
// llama.cpp says what each payload added to the message; here it becomes items or blocks, each opened, filled and closed
// before the next one begins. An answer that is not streamed is made of the same steps, without the events.
#pragma once

#include "server-common.h"
#include "server-task.h"

#include <memory>
#include <string>
#include <vector>

// What the answer says of its task apart from the text.
struct pyggml_answer_facts {
    int32_t           n_prompt_tokens       = 0;
    int32_t           n_prompt_tokens_cache = 0;
    int32_t           n_decoded             = 0;
    server_slot_stats stats                 = {};
    stop_type         stop                  = STOP_TYPE_NONE;
    std::string       stopping_word;
};

using pyggml_diffs = std::vector<common_chat_msg_diff>;

struct pyggml_answer {
    virtual ~pyggml_answer() = default;

    // The events of a piece of the message, or of a report on the prompt, which brings no diffs. Each is an object of
    // "event" and "data".
    virtual common_json add(const pyggml_diffs & diffs, const pyggml_answer_facts & facts,
                            const result_prompt_progress * progress) = 0;
    // The last events. With all that was added, they are the whole stream.
    virtual common_json end(const pyggml_diffs & diffs, const pyggml_answer_facts & facts) = 0;
    // The whole answer as one JSON value, after `end`.
    virtual common_json whole() const = 0;
    // The events of an error in the middle of the stream; `error` is llama-server's error object.
    virtual common_json error_events(const common_json & error) = 0;
};

// llama.cpp reads calls while they are written: a name may come in pieces, and text and calls in one step. In what comes
// out, the first diff of each call has its whole name, and the calls come one after the other.
class pyggml_call_order {
  public:
    pyggml_diffs settle(const pyggml_diffs & diffs, bool is_end);

  private:
    void flush(pyggml_diffs & out);

    size_t                n_begun = 0; // calls whose names are out
    bool                  waits   = false;
    common_chat_msg_diff  waiting; // a call whose name may not be whole yet
};

// `body` is the request's, as it came, and outlives the answer.
std::unique_ptr<pyggml_answer> pyggml_responses_answer(const common_json & body, const llama_vocab * vocab,
                                                       const std::string & model, int64_t created_s);
std::unique_ptr<pyggml_answer> pyggml_messages_answer(const common_json & body, const std::string & model,
                                                      const std::string & id);
