// Translation: an HTTP body to tasks, payloads back to each API's JSON. Any thread, one at a time per request.
#include "server_payload.hpp"

#include <algorithm>

using json = common_json;

// -- refusals --------------------------------------------------------------------------------------------------------

static void refuse(pyggml_bytes * refusal, const std::string & message, error_type type) {
    pyggml_bytes_assign(refusal, safe_json_to_str(format_error_response(message, type)));
}

// Runs `f`; what it throws becomes a refusal the way llama-server's HTTP wrapper answers it. True if it threw.
template <class F> static bool refused_by(pyggml_bytes * refusal, F && f) {
    try {
        f();
        return false;
    } catch (const std::invalid_argument & e) {
        refuse(refusal, e.what(), ERROR_TYPE_INVALID_REQUEST);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & e) {
        refuse(refusal, e.what(), ERROR_TYPE_SERVER);
    }
    return true;
}

// -- body to tasks ---------------------------------------------------------------------------------------------------

static task_response_type response_type(int kind) {
    switch (kind) {
        case PYGGML_REQUEST_COMPLETION:     return TASK_RESPONSE_TYPE_NONE;
        case PYGGML_REQUEST_OAI_COMPLETION: return TASK_RESPONSE_TYPE_OAI_CMPL;
        case PYGGML_REQUEST_OAI_CHAT:       return TASK_RESPONSE_TYPE_OAI_CHAT;
    }
    throw std::invalid_argument("unknown request kind " + std::to_string(kind));
}

static void check_tokens(const pyggml_server & server, const llama_tokens & tokens) {
    const llama_token n_vocab = llama_vocab_n_tokens(server.vocab);
    if (std::any_of(tokens.begin(), tokens.end(), [&](llama_token t) { return t < 0 || t >= n_vocab; })) {
        throw std::invalid_argument("Prompt contains invalid tokens");
    }
}

// Adds the task of the request's next result index.
static void add_task(pyggml_request & request, const llama_tokens & tokens, const task_params & params, int id_slot) {
    const pyggml_server & server = *request.server;
    const int32_t         index  = int32_t(request.tasks.size());
    auto                  task   = std::make_unique<pyggml_task>();
    task->server                 = &server;
    task->params                 = params;
    task->tokens                 = tokens;
    task->index                  = index;
    task->id_slot_wanted         = id_slot;
    task->params_json            = safe_json_to_str(params.to_json(true));
    if (task->params.n_predict == -1) {
        task->params.n_predict = server.params.n_predict;
    }
    try {
        task->sampler.reset(common_sampler_init(server.model, task->params.sampling));
    } catch (const std::exception & e) {
        throw std::invalid_argument(std::string("Failed to initialize samplers: ") + e.what());
    }
    if (!task->sampler) {
        throw std::invalid_argument("Failed to initialize samplers: the grammar could not be used");
    }
    request.formatters.push_back(std::make_unique<pyggml_formatter>(params, tokens, index));
    request.tasks.push_back(std::move(task));
}

// A prompt with n > 1 becomes n tasks of their own, each with the next seed.
static void add_prompt(pyggml_request & request, const llama_tokens & tokens, const json & data, int id_slot) {
    const pyggml_server & server = *request.server;
    check_tokens(server, tokens);
    task_params params = server_schema::eval_llama_cmpl_schema(server.vocab, server.params,
                                                               server.params.sampling.logit_bias_eog, data);
    if (!params.lora.empty() && server.params.lora_adapters.size() > 0) {
        throw std::invalid_argument("Field 'lora': adapters per request are not supported by pyggml-server yet");
    }
    params.sampling.backend_sampling = false;
    request.sse_ping_interval_s      = params.sse_ping_interval;
    const uint32_t seed              = params.sampling.seed;
    for (int i = 0; i < params.n_cmpl; ++i) {
        if (seed != LLAMA_DEFAULT_SEED) {
            params.sampling.seed = seed + uint32_t(i);
        }
        add_task(request, tokens, params, i == 0 ? id_slot : -1);
    }
}

static void add_tasks(pyggml_request & request, const json & data, const std::string & completion_id) {
    const pyggml_server & server = *request.server;
    const auto            inputs =
        tokenize_input_prompts(server.vocab, nullptr, data.at("prompt"), true, true, server.init_opt);
    auto delimiters = common_chat_msg_delimiters_parse(json_value(data, "message_delimiters", json::array()));
    delimiters.tokenize(server.vocab);
    const int id_slot = json_value(data, "id_slot", -1);
    for (const auto & input : inputs) {
        add_prompt(request, input.get_tokens(), data, id_slot);
    }
    if (request.tasks.empty()) {
        throw std::invalid_argument("\"prompt\" must not be empty");
    }
    for (size_t i = 0; i < request.tasks.size(); ++i) {
        for (task_params * params : { &request.tasks[i]->params, &request.formatters[i]->params }) {
            params->res_type          = request.res_type;
            params->oaicompat_cmpl_id = completion_id;
            params->oaicompat_model   = server.model_name;
        }
    }
    request.stream = json_value(data, "stream", false);
}

extern "C" int pyggml_request_parse(const pyggml_server * server, int kind, const char * body, size_t size,
                                    pyggml_request ** out, pyggml_bytes * refusal, pyggml_error * err) {
    *out     = nullptr;
    *refusal = {};
    return pyggml_guard(err, [&] {
        auto request      = std::make_unique<pyggml_request>();
        request->server   = server;
        request->res_type = response_type(kind);
        json       data;
        const bool refused = refused_by(refusal, [&] {
            data = json::parse(std::string(body, size));
            if (kind == PYGGML_REQUEST_OAI_CHAT) {
                std::vector<raw_buffer> files;
                data = oaicompat_chat_params_parse(data, server->chat_params, files);
            }
        });
        if (refused) {
            return;
        }
        try {
            add_tasks(*request, data, gen_chatcmplid());
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception & e) {
            refuse(refusal, e.what(), ERROR_TYPE_INVALID_REQUEST);
            return;
        }
        *out = request.release();
    });
}

extern "C" void pyggml_request_free(pyggml_request * request) {
    delete request;
}

extern "C" void pyggml_request_get_info(const pyggml_request * request, pyggml_request_info * out) {
    out->n_tasks             = int32_t(request->formatters.size());
    out->stream              = request->stream;
    out->ends_with_done      = request->res_type != TASK_RESPONSE_TYPE_NONE;
    out->sse_ping_interval_s = request->sse_ping_interval_s;
}

extern "C" pyggml_task * pyggml_request_take_task(pyggml_request * request, int32_t i) {
    if (i < 0 || size_t(i) >= request->tasks.size()) {
        return nullptr;
    }
    return request->tasks[i].release();
}

// -- payloads to JSON ------------------------------------------------------------------------------------------------

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
        const json j = kind == payload_kind::final ? final_json(*request->server, f, reader)
                                                   : partial_json(f, kind, reader);
        if (j == nullptr) {
            pyggml_bytes_assign(out, "");
        } else {
            pyggml_bytes_assign(out, as_stream ? format_oai_sse(j) : safe_json_to_str(j));
        }
    });
}

extern "C" int pyggml_request_format_error(const pyggml_request * request, const char * error, size_t size,
                                           pyggml_bytes * out, pyggml_error * err) {
    (void) request;
    return pyggml_guard(err, [&] {
        const json wrapped = { { "error", json::parse(std::string(error, size)) } };
        pyggml_bytes_assign(out, format_oai_sse(wrapped));
    });
}

extern "C" int pyggml_request_join(const pyggml_request * request, int32_t n, const char * const * results,
                                   const size_t * sizes, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        if (n < 1) {
            throw std::invalid_argument("a response needs at least one result");
        }
        if (n == 1) {
            pyggml_bytes_assign(out, std::string(results[0], sizes[0]));
            return;
        }
        json all = json::array();
        for (int32_t i = 0; i < n; ++i) {
            all.push_back(json::parse(std::string(results[i], sizes[i])));
        }
        if (request->res_type == TASK_RESPONSE_TYPE_NONE) {
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

// -- calls that need no task -----------------------------------------------------------------------------------------

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
        const auto tokens = body.at("tokens").get<llama_tokens>();
        check_tokens(server, tokens);
        content = tokens_to_str(server.vocab, tokens);
    }
    return { { "content", content } };
}

static json apply_template(const pyggml_server & server, json body) {
    std::vector<raw_buffer> files;
    const json              data = oaicompat_chat_params_parse(body, server.chat_params, files);
    return { { "prompt", json(data.at("prompt")) } };
}

extern "C" int pyggml_translate(const pyggml_server * server, int translation, const char * body, size_t size,
                                pyggml_bytes * out, pyggml_bytes * refusal, pyggml_error * err) {
    *out     = {};
    *refusal = {};
    return pyggml_guard(err, [&] {
        refused_by(refusal, [&] {
            const json in = json::parse(std::string(body, size));
            json       result;
            switch (translation) {
                case PYGGML_TRANSLATE_TOKENIZE:       result = tokenize(*server, in); break;
                case PYGGML_TRANSLATE_DETOKENIZE:     result = detokenize(*server, in); break;
                case PYGGML_TRANSLATE_APPLY_TEMPLATE: result = apply_template(*server, in); break;
                default: throw std::invalid_argument("unknown translation " + std::to_string(translation));
            }
            pyggml_bytes_assign(out, safe_json_to_str(result));
        });
    });
}
