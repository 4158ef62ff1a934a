// Chats of the three APIs to llama.cpp's own completion body: what its translation leaves out is put right before it.
// Any thread.
#include "server_media.hpp"
#include "server_translate.hpp"

using json = common_json;

static bool is_text(const json & value) {
    return value.is_string();
}

// Clients that write all of their fields send null for those without a value.
static json without_nulls(const json & object) {
    json out = json::object();
    for (const auto & [key, value] : object.items()) {
        if (!value.is_null()) {
            out[key] = value;
        }
    }
    return out;
}

// -- tools -----------------------------------------------------------------------------------------------------------

static bool has_function(const json & tools, const std::string & name) {
    for (const json & tool : tools) {
        if (tool.is_object() && tool.contains("function") && tool.at("function").is_object() &&
            json_value(tool.at("function"), "name", std::string()) == name) {
            return true;
        }
    }
    return false;
}

// Leaves the named functions only.
static void keep_functions(json & chat, const std::vector<std::string> & names) {
    const json tools = json_value(chat, "tools", json::array());
    json       kept  = json::array();
    for (const std::string & name : names) {
        if (!has_function(tools, name)) {
            throw std::invalid_argument("tool_choice names the function '" + name + "', which is not among the tools");
        }
    }
    for (const json & tool : tools) {
        for (const std::string & name : names) {
            if (json_value(tool.at("function"), "name", std::string()) == name) {
                kept.push_back(tool);
            }
        }
    }
    chat["tools"] = kept;
}

// Chat: {"function": {"name": ...}}, Responses: {"name": ...}.
static std::string named_function(const json & choice) {
    const json & holder = choice.contains("function") ? choice.at("function") : choice;
    if (!holder.is_object() || !holder.contains("name") || !is_text(holder.at("name"))) {
        throw std::invalid_argument("tool_choice must name a function: {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    return holder.at("name").get<std::string>();
}

// llama.cpp knows a choice by its word only: a named function becomes the only one, and required.
static void choose_tools(json & chat) {
    if (!chat.contains("tool_choice") || chat.at("tool_choice").is_string()) {
        return;
    }
    const json choice = chat.at("tool_choice");
    if (!choice.is_object()) {
        throw std::invalid_argument("tool_choice must be a string or an object");
    }
    const std::string type = json_value(choice, "type", std::string());
    if (type == "function") {
        keep_functions(chat, { named_function(choice) });
        chat["tool_choice"] = "required";
    } else if (type == "allowed_tools") {
        const json & allowed = choice.contains("allowed_tools") ? choice.at("allowed_tools") : choice;
        std::vector<std::string> names;
        for (const json & tool : json_value(allowed, "tools", json::array())) {
            names.push_back(named_function(tool));
        }
        keep_functions(chat, names);
        chat["tool_choice"] = json_value(allowed, "mode", std::string("auto"));
    } else {
        throw std::invalid_argument("tool_choice of the type '" + type + "' is not supported: use \"auto\", \"none\", "
                                    "\"required\", or name a function");
    }
}

static void tidy_tools(json & chat) {
    if (!chat.contains("tools") || !chat.at("tools").is_array()) {
        return;
    }
    for (json & tool : chat.at("tools")) {
        if (tool.is_object() && tool.contains("function") && tool.at("function").is_object()) {
            tool["function"] = without_nulls(tool.at("function"));
        }
    }
}

// -- Messages --------------------------------------------------------------------------------------------------------

static json from_messages(const json & body) {
    if (!body.contains("messages")) {
        throw std::invalid_argument("'messages' is required");
    }
    if (!body.at("messages").is_array()) {
        throw std::invalid_argument("'messages' must be an array of objects");
    }
    if (body.contains("stop_sequences") && !body.at("stop_sequences").is_null() &&
        !body.at("stop_sequences").is_array()) {
        throw std::invalid_argument("'stop_sequences' must be an array of strings");
    }
    json         chat   = server_chat_convert_anthropic_to_oai(without_nulls(body));
    const json   choice = json_value(body, "tool_choice", json::object());
    const auto   type   = choice.is_object() ? json_value(choice, "type", std::string()) : std::string();
    if (type == "none") {
        chat["tool_choice"] = "none";
    } else if (type == "tool") {
        chat["tool_choice"] = json{ { "type", "function" }, { "name", choice.value("name", "") } };
    }
    if (choice.is_object() && json_value(choice, "disable_parallel_tool_use", false)) {
        chat["parallel_tool_calls"] = false;
    }
    return chat;
}

// -- all of them -----------------------------------------------------------------------------------------------------

// The last message is the beginning of the answer, which llama.cpp continues without being asked.
static bool is_prefilled(const pyggml_server & server, const json & chat) {
    const json & messages = chat.at("messages");
    return server.chat_params.prefill_assistant && !messages.empty() &&
           json_value(messages.at(messages.size() - 1), "role", std::string()) == "assistant";
}

json pyggml_chat_to_completion(const pyggml_server & server, task_response_type type, const json & body,
                               std::vector<raw_buffer> & files) {
    if (!body.is_object()) {
        throw std::invalid_argument(type == TASK_RESPONSE_TYPE_OAI_RESP ? "'input' is required" : "'messages' is required");
    }
    json chat;
    switch (type) {
        case TASK_RESPONSE_TYPE_OAI_RESP:  chat = pyggml_responses_to_chat(body); break;
        case TASK_RESPONSE_TYPE_ANTHROPIC: chat = from_messages(body); break;
        default:                           chat = without_nulls(body);
    }
    tidy_tools(chat);
    choose_tools(chat);
    if (server.media) {
        pyggml_refuse_remote_media(chat);
    }
    json data = oaicompat_chat_params_parse(chat, server.chat_params, files);
    if (!chat.contains("continue_final_message") && is_prefilled(server, chat)) {
        data["continue_final_message"] = true; // so that the answer does not repeat its beginning
    }
    return data;
}
