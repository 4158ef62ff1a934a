// Infill: a prefix, a suffix and other files become a prompt with the model's own FIM tokens. Any thread.
#include "server_translate.hpp"

using json = common_json;

static void check_vocabulary(const llama_vocab * vocab) {
    std::string missing;
    missing += llama_vocab_fim_pre(vocab) == LLAMA_TOKEN_NULL ? "prefix token is missing. " : "";
    missing += llama_vocab_fim_suf(vocab) == LLAMA_TOKEN_NULL ? "suffix token is missing. " : "";
    missing += llama_vocab_fim_mid(vocab) == LLAMA_TOKEN_NULL ? "middle token is missing. " : "";
    if (!missing.empty()) {
        throw pyggml_request_refused("Infill is not supported by this model: " + missing, ERROR_TYPE_NOT_SUPPORTED);
    }
}

static json extra_files(const json & body) {
    const auto refuse = [](const char * message) { throw pyggml_request_refused(message, ERROR_TYPE_INVALID_REQUEST); };
    if (body.contains("input_extra") && !body.at("input_extra").is_array()) {
        refuse("\"input_extra\" must be an array of {\"filename\": string, \"text\": string}");
    }
    const json files = json_value(body, "input_extra", json::array());
    for (const auto & file : files) {
        if (!file.contains("text") || !file.at("text").is_string()) {
            refuse("extra_context chunk must contain a \"text\" field with a string value");
        }
        if (file.contains("filename") && !file.at("filename").is_string()) {
            refuse("extra_context chunk's \"filename\" field must be a string");
        }
    }
    return files;
}

json pyggml_infill_to_completion(const pyggml_server & server, const std::string & infill) {
    check_vocabulary(server.vocab);
    json body                = json::parse(infill);
    body["input_extra"]      = extra_files(body);
    const std::string prompt = json_value(body, "prompt", std::string());
    const auto        inputs = tokenize_input_prompts(server.vocab, nullptr, prompt, false, true, server.init_opt);
    const auto &      params = server.params;
    body["prompt"]           = format_prompt_infill(server.vocab, body.at("input_prefix"), body.at("input_suffix"),
                                                    body.at("input_extra"), params.n_batch, params.n_predict,
                                                    server.n_ctx_slot(), params.spm_infill, inputs[0].get_tokens());
    return body;
}
