// OpenAI's Responses: bodies in all the forms that the API has, in those that llama.cpp's translation knows. Any thread.
#include "server_translate.hpp"

using json = common_json;

static bool has_type(const json & item, const char * type) {
    return json_value(item, "type", std::string()) == type;
}

static bool holds(const json & item, const char * name) {
    return item.contains(name) && !item.at(name).is_null();
}

static json text_part(const char * type, const json & text) {
    return { { "type", type }, { "text", text } };
}

// The parts of an answer, all as text: a refusal is what the assistant said.
static json said(const json & content) {
    json parts = json::array();
    if (content.is_string()) {
        parts.push_back(text_part("output_text", content));
        return parts;
    }
    for (const json & part : content) {
        const bool is_refusal = part.is_object() && has_type(part, "refusal") && holds(part, "refusal");
        parts.push_back(is_refusal ? text_part("output_text", part.at("refusal")) : part);
    }
    return parts;
}

static json message(json item) {
    if (json_value(item, "role", std::string()) == "assistant" && holds(item, "content")) {
        item["type"]    = "message";
        item["content"] = said(item.at("content"));
    }
    return item;
}

// What a tool gave: text is text, whoever said it.
static json tool_output(json item) {
    if (holds(item, "output") && item.at("output").is_array()) {
        for (json & part : item.at("output")) {
            if (part.is_object() && (has_type(part, "output_text") || has_type(part, "text"))) {
                part = text_part("input_text", json_value(part, "text", std::string()));
            }
        }
    }
    return item;
}

// The text of reasoning in one part; its summary where the text is not there.
static json reasoning(json item) {
    std::string text;
    for (const char * name : { "content", "summary" }) {
        if (text.empty() && holds(item, name)) {
            for (const json & part : item.at(name)) {
                text += json_value(part, "text", std::string());
            }
        }
    }
    json content = json::array();
    content.push_back(text_part("reasoning_text", text));
    item["content"] = content;
    item["summary"] = json::array();
    return item;
}

// Of a call without arguments clients send nothing.
static json function_call(json item) {
    if (item.contains("arguments") && item.at("arguments") == "") {
        item["arguments"] = "{}";
    }
    return item;
}

static json input_items(const json & input) {
    json items = json::array();
    for (const json & item : input) {
        if (!item.is_object()) {
            throw std::invalid_argument("'input' must be a string or array of objects");
        }
        if (has_type(item, "function_call_output")) {
            items.push_back(tool_output(item));
        } else if (has_type(item, "function_call")) {
            items.push_back(function_call(item));
        } else if (has_type(item, "reasoning")) {
            const json told = reasoning(item);
            if (told.at("content").at(0).at("text") != "") {
                items.push_back(told);
            } // else only its encrypted form is there, which says nothing here
        } else {
            items.push_back(message(item));
        }
    }
    return items;
}

// {"text": {"format": ...}} is chat's response_format.
static void set_format(json & body) {
    const json text   = json_value(body, "text", json::object());
    const json format = text.is_object() ? json_value(text, "format", json::object()) : json::object();
    if (!text.is_object() || !format.is_object()) {
        throw std::invalid_argument("'text' must be {\"format\": {\"type\": ...}}");
    }
    if (has_type(format, "json_schema")) {
        if (!format.contains("schema") || !format.at("schema").is_object()) {
            throw std::invalid_argument("'text.format' of the type json_schema needs a 'schema'");
        }
        body["response_format"] = json{ { "type", "json_schema" }, { "json_schema", format } };
    } else if (has_type(format, "json_object")) {
        body["response_format"] = json{ { "type", "json_object" } };
    } else if (holds(format, "type") && !has_type(format, "text")) {
        throw std::invalid_argument("'text.format' must be of the type text, json_object or json_schema");
    }
    body.erase("text");
}

json pyggml_responses_to_chat(const json & original) {
    json body = json::object();
    for (const auto & [key, value] : original.items()) {
        if (!value.is_null()) {
            body[key] = value;
        }
    }
    if (body.contains("input") && body.at("input").is_array()) {
        body["input"] = input_items(body.at("input"));
    }
    set_format(body);
    for (const char * name : { "n", "n_cmpl", "top_logprobs" }) { // the API has one answer, and we no logprobs in it
        body.erase(name);
    }
    return server_chat_convert_responses_to_chatcmpl(body);
}
