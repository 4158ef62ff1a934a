// Calls that need no task: text to tokens and back, the chat template, counting, slot files. Any thread.
#include "server_adapters.hpp"
#include "server_media.hpp"
#include "server_translate.hpp"

using json = common_json;

static json piece_json(const std::string & piece) {
    if (is_valid_utf8(piece)) {
        return json(piece);
    }
    json bytes = json::array();
    for (const unsigned char c : piece) {
        bytes.push_back(int(c));
    }
    return bytes;
}

static json tokenize(const pyggml_server & server, const json & body) {
    json out = json::array();
    if (body.contains("content")) {
        const bool add_special   = json_value(body, "add_special", false);
        const bool parse_special = json_value(body, "parse_special", true);
        const bool with_pieces   = json_value(body, "with_pieces", false);
        pyggml_check_token_numbers(server, body.at("content"));
        for (const llama_token t : tokenize_mixed(server.vocab, body.at("content"), add_special, parse_special)) {
            if (with_pieces) {
                out.push_back({ { "id", t }, { "piece", piece_json(common_token_to_piece(server.vocab, t)) } });
            } else {
                out.push_back(t);
            }
        }
    }
    return { { "tokens", out } };
}

static json detokenize(const pyggml_server & server, const json & body) {
    std::string content;
    if (body.contains("tokens")) {
        pyggml_check_token_numbers(server, body.at("tokens"));
        const auto tokens = body.at("tokens").get<llama_tokens>();
        pyggml_check_tokens(server, tokens);
        content = tokens_to_str(server.vocab, tokens);
    }
    return { { "content", content } };
}

static json apply_template(const pyggml_server & server, const json & body) {
    std::vector<raw_buffer> files; // only their places are in the prompt
    const json data = pyggml_chat_to_completion(server, TASK_RESPONSE_TYPE_OAI_CHAT, body, files);
    return { { "prompt", json(data.at("prompt")) } };
}

// How many tokens the chat's prompt has.
static json count_tokens(const pyggml_server & server, task_response_type type, const json & body) {
    std::vector<raw_buffer> files;
    const json data = pyggml_chat_to_completion(server, type, body, files);
    json       out  = { { "input_tokens", int64_t(pyggml_count_prompt(server, data.at("prompt"), files)) } };
    if (type != TASK_RESPONSE_TYPE_ANTHROPIC) {
        out["object"] = "response.input_tokens";
    }
    return out;
}

static json slot_file(const pyggml_server & server, const json & body) {
    const std::string filename = body.at("filename");
    if (!fs_validate_filename(filename)) {
        throw std::invalid_argument("Invalid filename");
    }
    return { { "filename", filename }, { "path", server.params.slot_save_path + filename } };
}

// The completion that a control request means; there is one action only.
static json controlled_completion(const json & body) {
    const std::string id     = json_value(body, "id", std::string());
    const std::string action = json_value(body, "action", std::string());
    if (id.empty()) {
        throw std::invalid_argument("missing completion id");
    }
    if (action != "reasoning_end") {
        throw std::invalid_argument("unknown control action");
    }
    return { { "id", id } };
}

static json translate(const pyggml_server & server, int translation, const json & body) {
    switch (translation) {
        case PYGGML_TRANSLATE_TOKENIZE:        return tokenize(server, body);
        case PYGGML_TRANSLATE_DETOKENIZE:      return detokenize(server, body);
        case PYGGML_TRANSLATE_APPLY_TEMPLATE:  return apply_template(server, body);
        case PYGGML_TRANSLATE_COUNT_CHAT:      return count_tokens(server, TASK_RESPONSE_TYPE_OAI_CHAT, body);
        case PYGGML_TRANSLATE_COUNT_RESPONSES: return count_tokens(server, TASK_RESPONSE_TYPE_OAI_RESP, body);
        case PYGGML_TRANSLATE_COUNT_ANTHROPIC: return count_tokens(server, TASK_RESPONSE_TYPE_ANTHROPIC, body);
        case PYGGML_TRANSLATE_SLOT_FILE:       return slot_file(server, body);
        case PYGGML_TRANSLATE_CONTROL:         return controlled_completion(body);
        case PYGGML_TRANSLATE_SET_ADAPTERS:    return pyggml_set_adapters(server, body);
    }
    throw std::logic_error("unknown translation " + std::to_string(translation));
}

extern "C" int pyggml_translate(const pyggml_server * server, int translation, const char * body, size_t size,
                                const int32_t * is_abandoned, pyggml_bytes * out, pyggml_bytes * refusal,
                                pyggml_error * err) {
    *out     = {};
    *refusal = {};
    return pyggml_guard(err, [&] {
        pyggml_refused_by(refusal, pyggml_limits_for_body(size, is_abandoned), [&] {
            const json result = translate(*server, translation, json::parse(std::string(body, size)));
            pyggml_bytes_assign(out, safe_json_to_str(result));
        });
    });
}
