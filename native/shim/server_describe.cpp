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

// -- where states come from ------------------------------------------------------------------------------------------

static json value_of(const llama_model_kv_override & one) {
    switch (one.tag) {
        case LLAMA_KV_OVERRIDE_TYPE_INT:   return one.val_i64;
        case LLAMA_KV_OVERRIDE_TYPE_FLOAT: return one.val_f64;
        case LLAMA_KV_OVERRIDE_TYPE_BOOL:  return one.val_bool;
        default:                           return std::string(one.val_str);
    }
}

static json settings_of(const pyggml_server & server) {
    const common_params & p = server.params;
    // what picks one of several sets of RoPE factors
    const bool is_long = llama_n_ctx_seq(server.ctx) > uint32_t(llama_model_n_ctx_train(server.model));
    json       numbers = json::array();
    for (const double number : std::vector<double>{
             double(p.cache_type_k), double(p.cache_type_v), double(p.speculative.draft.cache_type_k),
             double(p.speculative.draft.cache_type_v), double(p.flash_attn_type), double(p.rope_scaling_type),
             p.rope_freq_base, p.rope_freq_scale, p.yarn_ext_factor, p.yarn_attn_factor, p.yarn_beta_fast,
             p.yarn_beta_slow, double(p.yarn_orig_ctx), double(is_long), double(p.swa_full), double(p.attention_type),
             double(p.control_vector_layer_start), double(p.control_vector_layer_end) }) {
        numbers.push_back(number);
    }
    for (const auto & vector : p.control_vectors) {
        numbers.push_back(vector.strength);
    }
    json overrides = json::array();
    for (const auto & one : p.kv_overrides) {
        if (one.key[0] != 0) { // which ends the list
            overrides.push_back(std::string(one.key));
            overrides.push_back(value_of(one));
        }
    }
    return { { "build", std::string(llama_commit()) }, { "numbers", numbers }, { "overrides", overrides } };
}

extern "C" int pyggml_server_state_origin(const pyggml_server * server, pyggml_bytes * out, pyggml_error * err) {
    *out = {};
    return pyggml_guard(err, [&] {
        const common_params & p     = server->params;
        json                  files = json::array();
        files.push_back(p.model.path);
        if (!p.speculative.draft.mparams.path.empty()) {
            files.push_back(p.speculative.draft.mparams.path);
        }
        for (const auto & adapter : p.lora_adapters) {
            files.push_back(adapter.path);
        }
        for (const auto & vector : p.control_vectors) {
            files.push_back(vector.fname);
        }
        const json origin = { { "files", files }, { "settings", settings_of(*server) } };
        pyggml_bytes_assign(out, origin.dump());
    });
}
