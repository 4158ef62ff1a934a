// OpenAI's Responses: answers as items, streamed as events that number and name what they belong to.
#include "server_answer.hpp"

#include "common.h"

#include <ctime>

using json = common_json;

// -- the response object ---------------------------------------------------------------------------------------------

static json field_or(const json & body, const char * name, const json & otherwise) {
    return body.contains(name) && !body.at(name).is_null() ? body.at(name) : otherwise;
}

// As the API shows them: what the client left out is there.
static json shown_tools(const json & body) {
    json tools = json::array();
    for (json tool : field_or(body, "tools", json::array())) {
        if (tool.is_object() && json_value(tool, "type", std::string()) == "function") {
            if (!tool.contains("parameters")) {
                tool["parameters"] = json::object();
            }
            if (!tool.contains("strict")) {
                tool["strict"] = true;
            }
        }
        tools.push_back(tool);
    }
    return tools;
}

static json shown_text(const json & body) {
    json text = field_or(body, "text", json::object());
    if (!text.contains("format") || text.at("format").is_null()) {
        text["format"] = json{ { "type", "text" } };
    }
    return text;
}

namespace {

class responses_answer : public pyggml_answer {
  public:
    responses_answer(const json & body, const llama_vocab * vocab, const std::string & model, int64_t created_s) :
        body(body), vocab(vocab), model(model), created_s(created_s), id("resp_" + random_string()) {}

    json add(const pyggml_diffs & diffs, const pyggml_answer_facts & facts,
             const result_prompt_progress * progress) override {
        json events = json::array();
        if (!begin(events) && progress != nullptr) {
            emit(events, "response.in_progress", { { "response", response("in_progress", nullptr) } });
        }
        take(events, diffs);
        if (!events.empty()) {
            json & data = events.back().at("data");
            if (facts.stats.is_set()) {
                data["timings"] = facts.stats.to_json();
            }
            if (progress != nullptr) {
                data["prompt_progress"] = progress->to_json();
            }
        }
        return events;
    }

    json end(const pyggml_diffs & diffs, const pyggml_answer_facts & facts) override {
        json events = json::array();
        begin(events);
        take(events, diffs);
        const bool is_cut = facts.stop == STOP_TYPE_LIMIT;
        close(events, is_cut ? "incomplete" : "completed");
        completed = response(is_cut ? "incomplete" : "completed", usage(facts));
        completed["completed_at"] = int64_t(std::time(nullptr));
        if (is_cut) {
            completed["incomplete_details"] = json{ { "reason", "max_output_tokens" } };
        }
        // Also where the answer was cut: OpenAI's package takes no other event for the end, and the status says it.
        emit(events, "response.completed", { { "response", completed } });
        if (facts.stats.is_set()) {
            events.back().at("data")["timings"] = facts.stats.to_json();
        }
        return events;
    }

    json whole() const override { return completed; }

    json error_events(const json & error) override {
        json events = json::array();
        emit(events, "error", { { "code", error.value("type", "server_error") },
                                { "message", error.value("message", "") },
                                { "param", nullptr },
                                { "error", error } }); // llama-server's form, which OpenAI's package raises
        return events;
    }

  private:
    enum class kind { none, reasoning, message, call };

    void emit(json & events, const char * type, const json & fields) {
        json data = { { "type", type }, { "sequence_number", n_events++ } };
        for (const auto & [key, value] : fields.items()) {
            data[key] = value;
        }
        events.push_back({ { "event", type }, { "data", data } });
    }

    // False where the stream has begun already.
    bool begin(json & events) {
        if (has_begun) {
            return false;
        }
        has_begun = true;
        emit(events, "response.created", { { "response", response("in_progress", nullptr) } });
        emit(events, "response.in_progress", { { "response", response("in_progress", nullptr) } });
        return true;
    }

    json response(const char * status, const json & usage) const {
        return {
            { "id", id },
            { "object", "response" },
            { "created_at", created_s },
            { "status", status },
            { "error", nullptr },
            { "incomplete_details", nullptr },
            { "instructions", field_or(body, "instructions", nullptr) },
            { "max_output_tokens", field_or(body, "max_output_tokens", nullptr) },
            { "metadata", field_or(body, "metadata", json::object()) },
            { "model", model },
            { "output", output },
            { "parallel_tool_calls", field_or(body, "parallel_tool_calls", true) },
            { "previous_response_id", nullptr },
            { "store", false },
            { "temperature", field_or(body, "temperature", nullptr) },
            { "text", shown_text(body) },
            { "tool_choice", field_or(body, "tool_choice", "auto") },
            { "tools", shown_tools(body) },
            { "top_p", field_or(body, "top_p", nullptr) },
            { "truncation", "disabled" },
            { "usage", usage },
        };
    }

    json usage(const pyggml_answer_facts & facts) const {
        return {
            { "input_tokens", facts.n_prompt_tokens },
            { "output_tokens", facts.n_decoded },
            { "total_tokens", facts.n_decoded + facts.n_prompt_tokens },
            { "input_tokens_details", json{ { "cached_tokens", facts.n_prompt_tokens_cache }, { "cache_write_tokens", 0 } } },
            { "output_tokens_details", json{ { "reasoning_tokens", n_reasoning_tokens } } },
        };
    }

    // -- items -------------------------------------------------------------------------------------------------------

    void take(json & events, const pyggml_diffs & diffs) {
        for (const auto & diff : diffs) {
            if (!diff.reasoning_content_delta.empty()) {
                open(events, kind::reasoning, 0);
                fill(events, "response.reasoning_text.delta", diff.reasoning_content_delta);
            }
            if (!diff.content_delta.empty()) {
                open(events, kind::message, 0);
                fill(events, "response.output_text.delta", diff.content_delta);
            }
            if (diff.tool_call_index != std::string::npos) {
                if (!diff.tool_call_delta.name.empty()) {
                    call_id   = diff.tool_call_delta.id;
                    call_name = diff.tool_call_delta.name;
                }
                open(events, kind::call, diff.tool_call_index);
                if (!diff.tool_call_delta.arguments.empty()) {
                    fill(events, "response.function_call_arguments.delta", diff.tool_call_delta.arguments);
                }
            }
        }
    }

    // Where the event belongs.
    json place(bool in_content) const {
        json at = { { "item_id", item_id }, { "output_index", output.size() } };
        if (in_content) {
            at["content_index"] = 0;
        }
        return at;
    }

    json with_place(bool in_content, const json & fields) const {
        json at = place(in_content);
        for (const auto & [key, value] : fields.items()) {
            at[key] = value;
        }
        return at;
    }

    void open(json & events, kind wanted, size_t i_call) {
        if (current == wanted && (wanted != kind::call || i_call == current_call)) {
            return;
        }
        close(events, "completed");
        current      = wanted;
        current_call = i_call;
        text.clear();
        item_id = wanted == kind::call ? "fc_" + call_id : (wanted == kind::message ? "msg_" : "rs_") + random_string();
        json added = item("in_progress");
        if (wanted != kind::call) {
            added["content"] = json::array();
        }
        emit(events, "response.output_item.added", { { "output_index", output.size() }, { "item", added } });
        if (wanted != kind::call) {
            emit(events, "response.content_part.added", with_place(true, { { "part", part() } }));
        }
    }

    void fill(json & events, const char * type, const std::string & delta) {
        text += delta;
        json fields = with_place(current != kind::call, { { "delta", delta } });
        if (current == kind::message) {
            fields["logprobs"] = json::array();
        }
        emit(events, type, fields);
    }

    void close(json & events, const char * status) {
        switch (current) {
            case kind::none:
                return;
            case kind::reasoning:
                n_reasoning_tokens += int64_t(common_tokenize(vocab, text, false).size());
                emit(events, "response.reasoning_text.done", with_place(true, { { "text", text } }));
                break;
            case kind::message:
                emit(events, "response.output_text.done",
                     with_place(true, { { "text", text }, { "logprobs", json::array() } }));
                break;
            case kind::call:
                emit(events, "response.function_call_arguments.done",
                     with_place(false, { { "name", call_name }, { "arguments", text } }));
                break;
        }
        if (current != kind::call) {
            emit(events, "response.content_part.done", with_place(true, { { "part", part() } }));
        }
        const json done = item(status);
        emit(events, "response.output_item.done", { { "output_index", output.size() }, { "item", done } });
        output.push_back(done);
        current = kind::none;
    }

    json part() const {
        if (current == kind::reasoning) {
            return { { "type", "reasoning_text" }, { "text", text } };
        }
        return { { "type", "output_text" }, { "annotations", json::array() }, { "logprobs", json::array() }, { "text", text } };
    }

    json item(const char * status) const {
        if (current == kind::call) {
            return { { "id", item_id },        { "type", "function_call" },     { "status", status },
                     { "arguments", text },    { "call_id", "call_" + call_id }, { "name", call_name } };
        }
        json content = json::array();
        content.push_back(part());
        if (current == kind::reasoning) {
            return { { "id", item_id },         { "summary", json::array() }, { "type", "reasoning" },
                     { "content", content },    { "encrypted_content", "" },  { "status", status } };
        }
        return { { "id", item_id }, { "type", "message" }, { "status", status }, { "role", "assistant" }, { "content", content } };
    }

    const json &        body;
    const llama_vocab * vocab;
    const std::string   model;
    const int64_t       created_s;
    const std::string   id;

    bool        has_begun          = false;
    int64_t     n_events           = 0;
    int64_t     n_reasoning_tokens = 0;
    json        output             = json::array(); // the items that are closed
    json        completed;
    kind        current      = kind::none; // the item that is open
    size_t      current_call = 0;
    std::string item_id;
    std::string text; // of that item so far
    std::string call_id;
    std::string call_name;
};

} // namespace

std::unique_ptr<pyggml_answer> pyggml_responses_answer(const json & body, const llama_vocab * vocab,
                                                       const std::string & model, int64_t created_s) {
    return std::make_unique<responses_answer>(body, vocab, model, created_s);
}
