// Loading what guesses ahead: a draft model, the target's own extra layers, or nothing but n-grams. Engine thread.
#include "log_tee.hpp"
#include "server_draft.hpp"
#include "server_types.hpp"

#include "../src/llama-ext.h" // llama_get_ctx_other

#include <algorithm>

static bool has_type(const common_params & params, common_speculative_type type) {
    const auto & types = params.speculative.types;
    return std::find(types.begin(), types.end(), type) != types.end();
}

static common_speculative_init_result_ptr load_draft_context(pyggml_server & server, bool has_draft_model) {
    common_params draft_params = common_base_params_to_speculative(server.params);
    pyggml_log_tee log;
    auto           loaded      = common_speculative_init_from_params(draft_params, server.model, server.ctx);
    if (has_draft_model && loaded->model() == nullptr) {
        throw std::runtime_error("failed to load draft model, '" + draft_params.model.path + "'\n" + log.first_error());
    }
    if (loaded->context() == nullptr) {
        throw std::runtime_error("failed to create a context for the draft model '" + draft_params.model.path +
                                 "': " + pyggml_why_no_context(log.first_error(), draft_params));
    }
    return loaded;
}

// NULL where no kind is enabled, or where an enabled one refuses this model.
static common_speculative_ptr start_speculation(common_params & params) {
    common_speculative_ptr spec;
    try {
        spec.reset(common_speculative_init(params.speculative, uint32_t(params.n_parallel)));
    } catch (const std::exception & e) {
        SRV_ERR("failed to initialize speculative decoding context: %s\n", e.what());
        if (params.speculative.has_dft()) {
            SRV_WRN("draft model '%s' is not used, and answers come without guesses: name one with the vocabulary of "
                    "'%s' with -md, or leave -md out\n",
                    params.speculative.draft.mparams.path.c_str(), params.model.path.c_str());
        }
        if (params.speculative.has_synth()) {
            throw;
        }
    }
    if (!spec && params.speculative.has_synth()) {
        throw std::runtime_error("synthetic acceptance (--spec-synth-len, --spec-synth-rates) needs speculative "
                                 "decoding: add --spec-type");
    }
    return spec;
}

std::unique_ptr<pyggml_drafter> pyggml_drafter::load(pyggml_server & server) {
    common_params & params          = server.params;
    const bool      has_draft_model = params.speculative.has_dft();
    const bool      has_mtp         = has_type(params, COMMON_SPECULATIVE_TYPE_DRAFT_MTP);
    auto            drafter         = std::make_unique<pyggml_drafter>();
    drafter->ctx_tgt                = server.ctx;
    drafter->n_seq                  = params.n_parallel;
    drafter->rm_tgt                 = server.rm_type;
    if (has_draft_model || has_mtp) {
        drafter->init                    = load_draft_context(server, has_draft_model);
        drafter->ctx_dft                 = drafter->init->context();
        params.speculative.draft.ctx_tgt = server.ctx;
        params.speculative.draft.ctx_dft = drafter->ctx_dft;
    }
    if (drafter->rm_tgt == COMMON_CONTEXT_SEQ_RM_TYPE_NO) {
        SRV_WRN("%s", "speculative decoding not supported by this context\n");
        return nullptr;
    }
    drafter->spec = start_speculation(params);
    if (!drafter->spec) {
        return nullptr;
    }
    if (drafter->ctx_dft != nullptr) {
        drafter->has_own_cells = !(has_mtp && llama_get_ctx_other(drafter->ctx_dft) == server.ctx);
        drafter->rm_dft        = common_context_can_seq_rm(drafter->ctx_dft);
    }
    drafter->memory.init(drafter->ctx_tgt, drafter->ctx_dft);
    drafter->decoded = common_batch(server.ctx);
    return drafter;
}

extern "C" struct llama_context * pyggml_server_draft_context(pyggml_server * server) {
    return server->drafter ? server->drafter->own_context() : nullptr;
}

extern "C" struct llama_model * pyggml_server_draft_model(pyggml_server * server) {
    llama_context * ctx = pyggml_server_draft_context(server);
    return ctx ? const_cast<llama_model *>(llama_get_model(ctx)) : nullptr;
}
