// Anthropic's Messages: answers as blocks, of which one is open at a time.
#include "server_answer.hpp"

using json = common_json;

// Anthropic's names for llama-server's kinds of errors.
static std::string error_type_of(const std::string & type) {
    if (type == "server_error") {
        return "api_error";
    }
    if (type == "unavailable_error") {
        return "overloaded_error";
    }
    return type.find("invalid_request") == 0 || type == "authentication_error" || type == "permission_error" ||
                   type == "not_found_error" ?
               type :
               "invalid_request_error";
}

namespace {

class messages_answer : public pyggml_answer {
  public:
    messages_answer(const json & body, const std::string & model, const std::string & id) :
        body(body), model(model), id(id) {}

    json add(const pyggml_diffs & diffs, const pyggml_answer_facts & facts,
             const result_prompt_progress * progress) override {
        json events = json::array();
        if (progress != nullptr) {
            return events; // the API has no such event
        }
        begin(events, facts);
        take(events, diffs);
        return events;
    }

    json end(const pyggml_diffs & diffs, const pyggml_answer_facts & facts) override {
        json events = json::array();
        begin(events, facts);
        take(events, diffs);
        close(events);
        const json reason = stop_reason(facts);
        const json word   = reason == "stop_sequence" ? json(facts.stopping_word) : json(nullptr);
        emit(events, "message_delta", { { "delta", json{ { "stop_reason", reason }, { "stop_sequence", word } } },
                                        { "usage", json{ { "output_tokens", facts.n_decoded } } } });
        emit(events, "message_stop", json::object());
        complete = message(content, reason, word, facts, facts.n_decoded);
        return events;
    }

    json whole() const override { return complete; }

    json error_events(const json & error) override {
        json events = json::array();
        emit(events, "error", { { "error", json{ { "type", error_type_of(error.value("type", "server_error")) },
                                                 { "message", error.value("message", "") } } } });
        return events;
    }

  private:
    enum class kind { none, thinking, text, tool_use };

    static void emit(json & events, const char * type, const json & fields) {
        json data = { { "type", type } };
        for (const auto & [key, value] : fields.items()) {
            data[key] = value;
        }
        events.push_back({ { "event", type }, { "data", data } });
    }

    void begin(json & events, const pyggml_answer_facts & facts) {
        if (!has_begun) {
            has_begun = true;
            emit(events, "message_start", { { "message", message(json::array(), nullptr, nullptr, facts, 0) } });
        }
    }

    json message(const json & blocks, const json & reason, const json & word, const pyggml_answer_facts & facts,
                 int32_t n_output_tokens) const {
        return {
            { "id", id },
            { "type", "message" },
            { "role", "assistant" },
            { "content", blocks },
            { "model", model },
            { "stop_reason", reason },
            { "stop_sequence", word },
            { "usage", json{ { "cache_read_input_tokens", facts.n_prompt_tokens_cache },
                             { "input_tokens", facts.n_prompt_tokens - facts.n_prompt_tokens_cache },
                             { "output_tokens", n_output_tokens } } },
        };
    }

    // A word that ended the text is a stop sequence only if the client asked for it: templates have some of their own.
    json stop_reason(const pyggml_answer_facts & facts) const {
        if (facts.stop == STOP_TYPE_LIMIT) {
            return "max_tokens";
        }
        if (facts.stop == STOP_TYPE_WORD && body.contains("stop_sequences")) {
            for (const json & word : body.at("stop_sequences")) {
                if (word == facts.stopping_word) {
                    return "stop_sequence";
                }
            }
        }
        return has_tool_use ? "tool_use" : "end_turn";
    }

    // -- blocks ------------------------------------------------------------------------------------------------------

    void take(json & events, const pyggml_diffs & diffs) {
        for (const auto & diff : diffs) {
            if (!diff.reasoning_content_delta.empty()) {
                open(events, kind::thinking, diff);
                fill(events, "thinking_delta", "thinking", diff.reasoning_content_delta);
            }
            if (!diff.content_delta.empty()) {
                open(events, kind::text, diff);
                fill(events, "text_delta", "text", diff.content_delta);
            }
            if (diff.tool_call_index != std::string::npos) {
                open(events, kind::tool_use, diff);
                if (!diff.tool_call_delta.arguments.empty()) {
                    fill(events, "input_json_delta", "partial_json", diff.tool_call_delta.arguments);
                }
            }
        }
    }

    void open(json & events, kind wanted, const common_chat_msg_diff & diff) {
        if (current == wanted && (wanted != kind::tool_use || diff.tool_call_index == current_call)) {
            return;
        }
        close(events);
        current      = wanted;
        current_call = diff.tool_call_index;
        text.clear();
        switch (wanted) {
            case kind::thinking: block = { { "type", "thinking" }, { "thinking", "" }, { "signature", "" } }; break;
            case kind::text:     block = { { "type", "text" }, { "text", "" } }; break;
            default:
                has_tool_use = true;
                block        = { { "type", "tool_use" },
                                 { "id", diff.tool_call_delta.id },
                                 { "name", diff.tool_call_delta.name },
                                 { "input", json::object() } };
        }
        emit(events, "content_block_start", { { "index", content.size() }, { "content_block", block } });
    }

    void fill(json & events, const char * type, const char * name, const std::string & added) {
        text += added;
        emit(events, "content_block_delta",
             { { "index", content.size() }, { "delta", json{ { "type", type }, { name, added } } } });
    }

    void close(json & events) {
        switch (current) {
            case kind::none:
                return;
            case kind::thinking:
                block["thinking"] = text;
                // clients wait for a signature; a local model has none
                emit(events, "content_block_delta",
                     { { "index", content.size() },
                       { "delta", json{ { "type", "signature_delta" }, { "signature", "" } } } });
                break;
            case kind::text:
                block["text"] = text;
                break;
            case kind::tool_use: {
                const json input = json::parse_no_throw(text); // discarded where the answer was cut in the middle
                block["input"]   = input.is_object() ? input : json::object();
                break;
            }
        }
        emit(events, "content_block_stop", { { "index", content.size() } });
        content.push_back(block);
        current = kind::none;
    }

    const json &      body;
    const std::string model;
    const std::string id;

    bool        has_begun    = false;
    bool        has_tool_use = false;
    json        content      = json::array(); // the blocks that are closed
    json        complete;
    kind        current      = kind::none; // the block that is open
    size_t      current_call = 0;
    json        block;
    std::string text; // of that block so far
};

} // namespace

std::unique_ptr<pyggml_answer> pyggml_messages_answer(const json & body, const std::string & model,
                                                      const std::string & id) {
    return std::make_unique<messages_answer>(body, model, id);
}
