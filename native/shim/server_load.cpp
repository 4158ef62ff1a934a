// Loading: model, context and chat templates through llama.cpp's own common library.
#include "log_tee.hpp"
#include "server_media.hpp"
#include "server_types.hpp"

#include "arg.h"
#include "chat.h"
#include "../src/llama-ext.h" // llama_model_n_devices
#include "speculative.h"

#include <algorithm>
#include <filesystem>

using json = common_json;

int32_t pyggml_server::n_ctx_slot() const {
    int32_t n = int32_t(llama_n_ctx_seq(ctx));
    if (params.kv_unified_per_slot > 0) {
        n = std::min(n, params.kv_unified_per_slot);
    }
    return std::min(n, llama_model_n_ctx_train(model));
}

// Also reads from a draft model's file which kind of speculation it is for.
static void fetch_models(common_params & params) {
    auto handler = common_models_handler_init(params, LLAMA_EXAMPLE_SERVER);
    common_models_handler_apply(handler, params);
}

std::string pyggml_why_no_context(const std::string & said, const common_params & params) {
    const size_t      n_mib   = params.n_bytes_staging / (1024 * 1024);
    const std::string staging =
        n_mib == 0 ? "" : ", or --preempt-staging, which is " + std::to_string(n_mib) + " MiB on each device";
    const std::string remedy = "lower -c, -np or the batch size" + staging;
    if (said.empty()) {
        return remedy;
    }
    return said.find("alloc") == std::string::npos ? said : said + "; " + remedy;
}

// What the parser has said about a grammar is a line on stderr.
static common_init_result_ptr init_from(common_params & params) {
    const std::string & grammar = common_grammar_value(params.sampling.grammar);
    try {
        return common_init_from_params(params);
    } catch (const std::exception & e) {
        if (grammar.empty() || std::string(e.what()).find("grammar") == std::string::npos) {
            throw;
        }
        throw std::runtime_error(std::string("--grammar, --grammar-file or --json-schema: ") + e.what() + ": '" +
                                 grammar.substr(0, 60) + "'; write it as llama.cpp's grammars/README.md says, or leave "
                                 "it out");
    }
}

// llama.cpp goes on without a control vector that does not fit.
static void check_control_vectors(common_params & params, const llama_model * model) {
    if (params.control_vectors.empty()) {
        return;
    }
    const int n_embd = common_control_vector_load(params.control_vectors).n_embd;
    if (n_embd != llama_model_n_embd(model)) {
        throw std::runtime_error("--control-vector '" + params.control_vectors.front().fname + "': " +
                                 (n_embd == -1 ? std::string("no control vector") :
                                                 "one of another model, with " + std::to_string(n_embd) +
                                                     " values for each token") +
                                 "; make one for this model with llama.cpp's llama-cvector-generator");
    }
}

static void load_weights(pyggml_server & server) {
    common_params & params = server.params;

    // one row of logits per slot and step, and one for each guess; or an embedding of every token
    const bool embeds = params.embedding || (params.pooling_type != LLAMA_POOLING_TYPE_UNSPECIFIED &&
                                             params.pooling_type != LLAMA_POOLING_TYPE_NONE);
    const int32_t n_draft_max = common_speculative_n_max(&params.speculative);
    const auto    limits      = common_speculative_get_output_limits(params.n_batch, params.n_parallel, n_draft_max);
    params.n_outputs_max         = embeds ? params.n_batch : std::max(1, limits.total);
    params.n_outputs_max_per_seq = embeds ? 1 : std::max(1, limits.per_seq);

    pyggml_media_reserve(params);
    SRV_INF("loading model '%s'\n", params.model.get_name().c_str());
    pyggml_log_tee log;
    server.init  = init_from(params);
    server.model = server.init->model();
    server.ctx   = server.init->context();
    if (server.model == nullptr) {
        throw std::runtime_error("failed to load model, '" + params.model.path + "'\n" + log.first_error());
    }
    if (server.ctx == nullptr) {
        throw std::runtime_error("failed to create a context for model '" + params.model.path + "': " +
                                 pyggml_why_no_context(log.first_error(), params));
    }
    check_control_vectors(params, server.model);
    server.vocab    = llama_model_get_vocab(server.model);
    server.adapters = params.lora_adapters;
}

// Switches off what this model's memory cannot do, as llama-server does.
static void settle_abilities(pyggml_server & server) {
    common_params & params = server.params;
    llama_memory_t  mem    = llama_get_memory(server.ctx);
    if (params.ctx_shift && (mem == nullptr || !llama_memory_can_shift(mem))) {
        params.ctx_shift = false;
        SRV_WRN("%s", "ctx_shift is not supported by this context, it will be disabled\n");
    }
    if (params.n_cache_reuse > 0 && (mem == nullptr || !llama_memory_can_shift(mem))) {
        params.n_cache_reuse = 0;
        SRV_WRN("%s", "cache_reuse is not supported by this context, it will be disabled\n");
    }
    if (params.swa_full && llama_model_n_swa(server.model) == 0) {
        params.swa_full = false;
        SRV_WRN("%s", "swa_full is not supported by this model, it will be disabled\n");
    }
    server.rm_type = common_context_can_seq_rm(server.ctx);
    server.needs_checkpoints = server.rm_type == COMMON_CONTEXT_SEQ_RM_TYPE_FULL ||
                               server.rm_type == COMMON_CONTEXT_SEQ_RM_TYPE_RS ||
                               (!params.swa_full && llama_model_n_swa(server.model) > 0);
    if (params.cache_idle_slots && params.cache_ram_mib == 0) {
        params.cache_idle_slots = false;
        SRV_WRN("%s", "--cache-idle-slots requires --cache-ram, disabling\n");
    }
    if (!params.model_alias.empty()) {
        server.model_name = *params.model_alias.begin();
    } else if (!params.model.get_name().empty()) {
        server.model_name = params.model.get_name();
    } else {
        server.model_name = std::filesystem::path(params.model.path).filename().string();
    }
    if (!params.ui_config_json.empty()) {
        server.ui_settings = json::parse(params.ui_config_json);
    }
}

static void load_templates(pyggml_server & server) {
    const common_params &     params = server.params;
    common_chat_templates_ptr templates;
    bool                      thinking = false;
    try {
        templates = common_chat_templates_init(server.model, params.chat_template);
        common_chat_format_example(templates.get(), params.use_jinja, params.default_template_kwargs);
        thinking = params.enable_reasoning != 0 && params.use_jinja &&
                   common_chat_templates_support_enable_thinking(templates.get());
    } catch (const std::exception & e) {
        throw std::runtime_error(std::string("chat template parsing error: ") + e.what() +
                                 "; try --no-jinja, or another template with --chat-template");
    }
    server_chat_params & chat     = server.chat_params;
    chat.use_jinja                = params.use_jinja;
    chat.prefill_assistant        = params.prefill_assistant;
    chat.reasoning_format         = params.reasoning_format;
    chat.chat_template_kwargs     = params.default_template_kwargs;
    chat.tmpls                    = std::move(templates);
    chat.allow_image              = pyggml_sees(server);
    chat.allow_audio              = pyggml_hears(server);
    chat.allow_video              = false;
    chat.enable_thinking          = thinking;
    chat.reasoning_budget         = params.sampling.reasoning_budget_tokens;
    chat.reasoning_budget_message = params.sampling.reasoning_budget_message;
    chat.media_path               = params.media_path;
    chat.force_pure_content       = params.force_pure_content_parser;
}

static std::unique_ptr<pyggml_row_pool> make_row_pool(const common_params & params, int32_t n_threads) {
    if (n_threads == 0) {
        n_threads = pyggml_row_pool::n_threads_for(params.n_parallel, params.cpuparams.n_threads);
    }
    n_threads = std::min(n_threads, params.n_parallel);
    SRV_INF("sampling on %d threads\n", n_threads);
    return std::make_unique<pyggml_row_pool>(n_threads);
}

extern "C" int pyggml_server_load(pyggml_args * args, size_t n_bytes_staging, int32_t n_sampling_threads,
                                  pyggml_server ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        auto server    = std::make_unique<pyggml_server>();
        server->params = args->params;
        server->params.n_bytes_staging = n_bytes_staging;
        llama_backend_init();
        llama_numa_init(server->params.numa);
        common_params_print_info(server->params, true);
        if (!args->are_files_here) {
            fetch_models(server->params);
        }
        load_weights(*server);
        pyggml_media_load(*server);
        settle_abilities(*server);
        server->drafter = pyggml_drafter::load(*server);
        server->row_pool = make_row_pool(server->params, n_sampling_threads);
        load_templates(*server);
        SRV_INF("initializing, n_slots = %d, n_ctx_slot = %d, kv_unified = '%s'\n", server->params.n_parallel,
                server->n_ctx_slot(), server->params.kv_unified ? "true" : "false");
        *out = server.release();
    });
}

extern "C" void pyggml_server_free(pyggml_server * server) {
    delete server;
}

extern "C" struct llama_model * pyggml_server_model(pyggml_server * server) {
    return server->model;
}

extern "C" struct llama_context * pyggml_server_context(pyggml_server * server) {
    return server->ctx;
}

static bool has_overrides(const common_params & params) {
    const auto & all = params.tensor_buft_overrides; // padded with empty ones
    return std::any_of(all.begin(), all.end(), [](const auto & one) { return one.pattern != nullptr; });
}

// No layer on the processor: then a decode is issued, and its end is waited for elsewhere.
static bool is_async(const pyggml_server & server) {
    const common_params & params = server.params;
    const int32_t n_layers = llama_model_n_layer(server.model);
    return llama_model_n_devices(server.model) > 0 && !params.no_kv_offload && !has_overrides(params) &&
           (params.n_gpu_layers < 0 || params.n_gpu_layers > n_layers);
}

extern "C" int pyggml_server_get_info(const pyggml_server * server, pyggml_server_info * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const common_params & params = server->params;
        llama_memory_t        mem    = llama_get_memory(server->ctx);
        out->n_slots                 = params.n_parallel;
        out->n_ctx                   = int32_t(llama_n_ctx(server->ctx));
        out->n_ctx_slot              = server->n_ctx_slot();
        out->n_batch                 = int32_t(llama_n_batch(server->ctx));
        out->n_ubatch                = int32_t(llama_n_ubatch(server->ctx));
        out->n_swa                   = params.swa_full ? 0 : llama_model_n_swa(server->model);
        out->has_memory              = mem != nullptr;
        out->kv_unified              = params.kv_unified;
        out->can_shift               = mem != nullptr && llama_memory_can_shift(mem) && !server->media;
        out->is_recurrent            = llama_model_is_recurrent(server->model);
        out->is_hybrid               = llama_model_is_hybrid(server->model);
        out->partial_rm              = server->rm_type == COMMON_CONTEXT_SEQ_RM_TYPE_PART;
        out->speculates              = server->drafter != nullptr;
        out->n_draft_max             = server->drafter ? server->drafter->n_max() : 0;
        out->ctx_shift               = params.ctx_shift;
        out->cont_batching           = params.cont_batching;
        out->add_bos                 = llama_vocab_get_add_bos(server->vocab);
        out->slot_prompt_similarity  = params.slot_prompt_similarity;
        out->n_ctx_checkpoints       = server->needs_checkpoints ? std::max(0, params.n_ctx_checkpoints) : 0;
        out->checkpoint_min_step     = params.checkpoint_min_step;
        out->cache_ram_mib           = params.cache_ram_mib;
        out->is_async                = is_async(*server);
        out->has_media               = server->media != nullptr;
        out->cache_idle_slots        = params.cache_idle_slots;
    });
}
