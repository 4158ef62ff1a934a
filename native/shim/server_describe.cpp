// What /props and /v1/models say of the loaded model. Any thread.
#include "server_adapters.hpp"
#include "server_media.hpp"

#include "build-info.h"
#include "chat.h"

#include <ctime>

using json = common_json;

static std::string special_piece(const pyggml_server & server, llama_token token) {
    return token == LLAMA_TOKEN_NULL ? "" : common_token_to_piece(server.vocab, token, true);
}

static json model_info(const pyggml_server & server) {
    return {
        { "id", server.model_name },
        { "aliases", server.params.model_alias },
        { "tags", server.params.model_tags },
        { "object", "model" },
        { "created", int64_t(std::time(nullptr)) },
        { "owned_by", "llamacpp" },
        { "meta",
          {
              { "vocab_type", int(llama_vocab_type(server.vocab)) },
              { "n_vocab", llama_vocab_n_tokens(server.vocab) },
              { "n_ctx", server.n_ctx_slot() },
              { "n_ctx_train", llama_model_n_ctx_train(server.model) },
              { "n_embd", llama_model_n_embd(server.model) },
              { "n_params", llama_model_n_params(server.model) },
              { "size", llama_model_size(server.model) },
              { "ftype", std::string(llama_ftype_name(llama_model_ftype(server.model))) },
          } },
    };
}

// The second list is the one that ollama's clients read.
static json models(const pyggml_server & server) {
    const json details = {
        { "parent_model", "" },   { "format", "gguf" },         { "family", "" },
        { "families", json::array({ "" }) }, { "parameter_size", "" }, { "quantization_level", "" },
    };
    const json entry = {
        { "name", server.model_name },
        { "model", server.model_name },
        { "modified_at", "" },
        { "size", "" },
        { "digest", "" },
        { "type", "model" },
        { "description", "" },
        { "tags", json::array({ "" }) },
        { "capabilities", server.media ? json::array({ "completion", "multimodal" }) : json::array({ "completion" }) },
        { "parameters", "" },
        { "details", details },
    };
    return {
        { "models", json::array({ entry }) },
        { "object", "list" },
        { "data", json::array({ model_info(server) }) },
    };
}

static json props(const pyggml_server & server) {
    const common_params & params = server.params;
    task_params           defaults;
    defaults.sampling = params.sampling;
    json out          = {
        { "default_generation_settings", { { "params", defaults.to_json(true) }, { "n_ctx", server.n_ctx_slot() } } },
        { "total_slots", params.n_parallel },
        { "model_alias", server.model_name },
        { "model_ftype", std::string(llama_ftype_name(llama_model_ftype(server.model))) },
        { "model_path", params.model.path },
        { "modalities", { { "vision", pyggml_sees(server) }, { "video", false }, { "audio", pyggml_hears(server) } } },
        { "media_marker", std::string(get_media_marker()) },
        { "endpoint_slots", params.endpoint_slots },
        { "endpoint_props", params.endpoint_props },
        { "endpoint_metrics", params.endpoint_metrics },
        { "ui", params.ui },
        { "ui_settings", server.ui_settings },
        { "chat_template", common_chat_templates_source(server.chat_params.tmpls.get(), "") },
        { "chat_template_caps", common_chat_templates_get_caps(server.chat_params.tmpls.get()) },
        { "bos_token", special_piece(server, llama_vocab_bos(server.vocab)) },
        { "eos_token", special_piece(server, llama_vocab_eos(server.vocab)) },
        { "build_info", std::string(llama_build_info()) },
        { "is_sleeping", false },
        { "cors_proxy_enabled", params.ui_mcp_proxy },
    };
    const std::string tool_template = common_chat_templates_source(server.chat_params.tmpls.get(), "tool_use");
    if (params.use_jinja && !tool_template.empty()) {
        out["chat_template_tool_use"] = tool_template;
    }
    return out;
}

extern "C" int pyggml_describe(const pyggml_server * server, int description, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        switch (description) {
            case PYGGML_DESCRIBE_PROPS:    pyggml_bytes_assign(out, safe_json_to_str(props(*server))); break;
            case PYGGML_DESCRIBE_MODELS:   pyggml_bytes_assign(out, safe_json_to_str(models(*server))); break;
            case PYGGML_DESCRIBE_ADAPTERS: pyggml_bytes_assign(out, safe_json_to_str(pyggml_adapters_json(*server))); break;
            default: throw std::invalid_argument("unknown description " + std::to_string(description));
        }
    });
}
