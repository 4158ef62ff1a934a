// The command line: llama.cpp's parser, and what llama-server does between parsing and loading.
#include "server_named_files.hpp"
#include "server_types.hpp"

#include "arg.h"
#include "common.h"
#include "log.h"

#include <algorithm>
#include <csignal>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <fstream>

using json = common_json;

void pyggml_bytes_assign(pyggml_bytes * out, const std::string & text) {
    out->data = static_cast<uint8_t *>(malloc(text.size() + 1));
    if (out->data == nullptr) {
        throw std::bad_alloc();
    }
    memcpy(out->data, text.data(), text.size());
    out->data[text.size()] = 0;
    out->size              = text.size();
}

extern "C" void pyggml_bytes_free(pyggml_bytes * bytes) {
    free(bytes->data);
    bytes->data = nullptr;
    bytes->size = 0;
}

// What llama-server changes in the parsed parameters before it loads anything.
static void settle_params(common_params & params) {
    if (params.embedding && params.n_batch > params.n_ubatch) {
        SRV_WRN("embeddings need one physical batch per prompt: n_batch %d becomes n_ubatch %d\n", params.n_batch,
                params.n_ubatch);
        params.n_batch = params.n_ubatch;
    }
    if (params.n_parallel < 0) {
        params.n_parallel = 4;
        params.kv_unified = true;
    }
    const bool max_ctx_wanted = uint32_t(params.fit_params_min_ctx) == UINT32_MAX; // -c 0
    if (params.kv_unified_per_slot > 0 && params.n_ctx == 0 && !max_ctx_wanted) {
        params.n_ctx = params.n_parallel * params.kv_unified_per_slot;
        SRV_INF("--kv-unified-per-slot: pool of %d * %d = %d cells\n", params.n_parallel, params.kv_unified_per_slot,
                params.n_ctx);
    }
    const std::string name = params.model.get_name();
    if (params.model_alias.empty() && !name.empty()) {
        params.model_alias.insert(name);
    }
}

// llama.cpp aborts for a lookup cache that it cannot open.
static void check_lookup_caches(const common_params_speculative & speculative) {
    const auto & types = speculative.types;
    if (std::find(types.begin(), types.end(), COMMON_SPECULATIVE_TYPE_NGRAM_CACHE) == types.end()) {
        return;
    }
    const auto check = [](const char * flag, const std::string & path) {
        if (!path.empty() && !std::ifstream(path)) {
            throw std::invalid_argument(std::string("error: ") + flag + " '" + path +
                                        "': it cannot be read; name a file of llama-lookup-create's, or leave the flag out");
        }
    };
    check("--lookup-cache-static", speculative.ngram_cache.lookup_cache_static);
    check("--lookup-cache-dynamic", speculative.ngram_cache.lookup_cache_dynamic);
}

// llama.cpp's own checks of these are assertions, which end the process.
static void check_sizes(const common_params & params) {
    const auto check = [](const char * flag, int32_t value, int32_t least, const char * remedy) {
        if (value < least) {
            throw std::invalid_argument(std::string("error: ") + flag + " " + std::to_string(value) + ": give " + remedy);
        }
    };
    check("-c, --ctx-size", params.n_ctx, 0, "a number of tokens, or 0 for the model's own");
    check("-b, --batch-size", params.n_batch, 1, "1 or more");
}

extern "C" int pyggml_args_parse(int argc, char ** argv, pyggml_args ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        std::setlocale(LC_NUMERIC, "C");
        common_init();
        const auto named = pyggml_check_named_files(argc, argv);
        auto       args  = std::make_unique<pyggml_args>();
        if (!common_params_parse(argc, argv, args->params, LLAMA_EXAMPLE_SERVER)) {
            common_log_flush(common_log_main());
            throw std::invalid_argument(""); // the parser has said why
        }
        check_lookup_caches(args->params.speculative);
        check_sizes(args->params);
        pyggml_check_parsed_files(args->params, named);
        settle_params(args->params);
        *out = args.release();
    });
}

extern "C" void pyggml_args_on_load_progress(pyggml_args * args, llama_progress_callback callback) {
    args->params.load_progress_callback = callback;
}

extern "C" void pyggml_args_free(pyggml_args * args) {
    delete args;
}

extern "C" int pyggml_args_json(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const common_params & p = args->params;
        const json            j = {
            { "hostnames", p.hostnames },
            { "port", p.port },
            { "api_prefix", p.api_prefix },
            { "api_keys", p.api_keys },
            { "timeout_read_s", p.timeout_read },
            { "timeout_write_s", p.timeout_write },
            { "ssl_key_file", p.ssl_file_key },
            { "ssl_cert_file", p.ssl_file_cert },
            { "reuse_port", p.reuse_port },
            { "cors_origins", p.cors_origins },
            { "cors_methods", p.cors_methods },
            { "cors_headers", p.cors_headers },
            { "cors_credentials", p.cors_credentials },
            { "endpoint_slots", p.endpoint_slots },
            { "endpoint_props", p.endpoint_props },
            { "endpoint_metrics", p.endpoint_metrics },
            { "slot_save_path", p.slot_save_path },
            { "public_path", p.public_path },
            { "ui", p.ui },
            { "ui_mcp_proxy", p.ui_mcp_proxy },
            { "has_server_tools", !p.server_tools.empty() },
            { "n_parallel", p.n_parallel },
            { "kv_unified", p.kv_unified },
            { "sse_ping_interval_s", p.sse_ping_interval },
            { "sleep_idle_s", p.sleep_idle_seconds },
            { "n_threads_http", p.n_threads_http },
            { "model_name", p.model_alias.empty() ? p.model.get_name() : *p.model_alias.begin() },
            { "model_path", p.model.path },
            { "is_router", p.model.get_name().empty() && p.model.url.empty() },
            { "is_offline", p.offline },
            { "verbosity", p.verbosity },
        };
        pyggml_bytes_assign(out, safe_json_to_str(j));
    });
}

extern "C" void pyggml_log(char level, const char * text) {
    switch (level) {
        case 'E': LOG_ERR("%s\n", text); break;
        case 'W': LOG_WRN("%s\n", text); break;
        case 'I': LOG_INF("%s\n", text); break;
        case 'T': LOG_TRC("%s\n", text); break;
        default:  LOG_DBG("%s\n", text); break;
    }
}

extern "C" void pyggml_log_flush(void) {
    common_log_flush(common_log_main());
}
