// Payloads of the engine to each API's JSON and event streams. Any thread, one at a time per request.
#include "server_embeddings.hpp"

using json = common_json;

static json partial_json(pyggml_formatter & f, payload_kind kind, payload_reader & reader) {
    token_payload p;
    p.visit(reader);
    server_task_result_cmpl_partial res;
    res.id_slot               = -1; // as llama-server, which leaves it unset in partial results
    res.index                 = size_t(f.index);
    res.content               = p.content;
    res.n_decoded             = p.n_decoded;
    res.n_prompt_tokens       = p.n_prompt_tokens;
    res.n_prompt_tokens_cache = p.n_prompt_tokens_cache;
    res.post_sampling_probs   = f.params.post_sampling_probs;
    res.is_progress           = kind == payload_kind::progress;
    res.progress              = p.progress;
    res.tokens.assign(1, kind == payload_kind::progress ? 0 : p.token);
    res.prob_output       = p.probs;
    res.stats             = p.stats;
    res.verbose           = f.params.verbose;
    res.res_type          = f.params.res_type;
    res.oaicompat_model   = f.params.oaicompat_model;
    res.oaicompat_cmpl_id = f.params.oaicompat_cmpl_id;
    res.update(f.state);
    return res.to_json();
}

static json final_json(const pyggml_server & server, pyggml_formatter & f, payload_reader & reader) {
    final_payload p;
    p.visit(reader);
    server_task_result_cmpl_final res;
    res.id_slot               = p.id_slot;
    res.index                 = size_t(f.index);
    res.content               = p.content;
    res.tokens                = p.tokens;
    res.stream                = f.params.stream;
    res.include_usage         = f.params.include_usage;
    res.stats                 = p.stats;
    res.prompt                = common_detokenize(server.vocab, f.prompt, true);
    res.truncated             = p.truncated;
    res.n_decoded             = p.n_decoded;
    res.n_prompt_tokens       = p.n_prompt_tokens;
    res.n_prompt_tokens_cache = p.n_prompt_tokens_cache;
    res.n_tokens_cached       = p.n_tokens_cached;
    res.has_new_line          = p.has_new_line;
    res.stopping_word         = p.stopping_word;
    res.stop                  = p.stop;
    res.post_sampling_probs   = f.params.post_sampling_probs;
    res.probs_output          = p.probs;
    res.response_fields       = f.params.response_fields;
    res.generation_params     = f.params;
    res.verbose               = f.params.verbose;
    res.res_type              = f.params.res_type;
    res.oaicompat_model       = f.params.oaicompat_model;
    res.oaicompat_cmpl_id     = f.params.oaicompat_cmpl_id;
    res.update(f.state);
    return res.to_json();
}

static std::string to_events(task_response_type type, const json & j) {
    switch (type) {
        case TASK_RESPONSE_TYPE_ANTHROPIC: return format_anthropic_sse(j);
        case TASK_RESPONSE_TYPE_OAI_RESP:  return format_oai_resp_sse(j);
        default:                           return format_oai_sse(j);
    }
}

extern "C" int pyggml_request_format(pyggml_request * request, int32_t i, const uint8_t * payload, size_t size,
                                     int as_stream, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (i < 0 || size_t(i) >= request->formatters.size()) {
            throw std::invalid_argument("the request has no task " + std::to_string(i));
        }
        pyggml_formatter & f = *request->formatters[i];
        payload_reader     reader{ payload, payload + size };
        payload_kind       kind;
        reader.field(kind);
        json j;
        switch (kind) {
            case payload_kind::final:     j = final_json(*request->server, f, reader); break;
            case payload_kind::embedding: j = pyggml_embedding_json(*request, f, reader); break;
            default:                      j = partial_json(f, kind, reader); break;
        }
        if (j == nullptr) {
            pyggml_bytes_assign(out, "");
        } else {
            pyggml_bytes_assign(out, as_stream ? to_events(f.params.res_type, j) : safe_json_to_str(j));
        }
    });
}

extern "C" int pyggml_request_format_error(const pyggml_request * request, const char * error, size_t size,
                                           pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const json inner = json::parse(std::string(error, size));
        if (request->res_type == TASK_RESPONSE_TYPE_ANTHROPIC) {
            pyggml_bytes_assign(out, format_anthropic_sse({ { "event", "error" }, { "data", inner } }));
        } else {
            pyggml_bytes_assign(out, format_oai_sse(json{ { "error", inner } }));
        }
    });
}

extern "C" int pyggml_request_join(const pyggml_request * request, int32_t n, const char * const * results,
                                   const size_t * sizes, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (n < 1) {
            throw std::invalid_argument("a response needs at least one result");
        }
        if (n == 1 && !pyggml_embeds(request->type)) {
            pyggml_bytes_assign(out, std::string(results[0], sizes[0]));
            return;
        }
        json all = json::array();
        for (int32_t i = 0; i < n; ++i) {
            all.push_back(json::parse(std::string(results[i], sizes[i])));
        }
        if (pyggml_embeds(request->type)) {
            pyggml_bytes_assign(out, safe_json_to_str(pyggml_join_embeddings(*request, all)));
            return;
        }
        if (!pyggml_is_openai(request->res_type)) {
            pyggml_bytes_assign(out, safe_json_to_str(all));
            return;
        }
        json choices = json::array();
        for (int32_t i = 0; i < n; ++i) {
            choices.push_back(json(all[i]["choices"][0]));
        }
        json first       = all[0];
        first["choices"] = choices;
        pyggml_bytes_assign(out, safe_json_to_str(first));
    });
}
