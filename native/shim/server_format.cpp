// What the engine says of a task to each API's JSON and event streams: tokens in the step that gave them, the end of the
// answer when its request asks for it.
#include "budget.hpp"
#include "server_embeddings.hpp"

using json = common_json;

// -- what stays the same in all of a request's answers ---------------------------------------------------------------

// OpenAI's `created` is one time for all of a stream.
static void set_created(json & j, int64_t created_s) {
    if (j.is_array()) {
        for (json & part : j) {
            set_created(part, created_s);
        }
    } else if (j.is_object() && j.contains("created")) {
        j["created"] = created_s;
    }
}

static void count_usage(pyggml_request & request, const pyggml_formatter & f, const final_payload & p) {
    pyggml_usage & usage = request.usage;
    if (!f.shares_prompt) {
        usage.n_prompt += p.n_prompt_tokens;
        usage.n_cached += p.n_prompt_tokens_cache;
    }
    usage.n_completion += p.n_decoded;
    usage.n_finished += 1;
}

static json usage_json(const pyggml_usage & usage) {
    return {
        { "completion_tokens", usage.n_completion },
        { "prompt_tokens", usage.n_prompt },
        { "total_tokens", usage.n_completion + usage.n_prompt },
        { "prompt_tokens_details", json{ { "cached_tokens", usage.n_cached } } },
    };
}

// The end of one of OpenAI's streams. What all answers took comes once, where it was asked for, behind the last of them
// and in a chunk without choices.
static json last_chunks(const pyggml_request & request, const pyggml_formatter & f, json chunks) {
    if (!chunks.is_array()) {
        json one = json::array();
        one.push_back(chunks);
        chunks = one;
    }
    json & last = chunks.back();
    if (last.contains("usage")) {
        last.erase("usage");
    }
    if (f.params.include_usage && request.usage.n_finished == int32_t(request.formatters.size())) {
        json end       = last;
        end["choices"] = json::array();
        end.erase("timings");
        end.erase("__verbose");
        end["usage"] = usage_json(request.usage);
        if (last.contains("timings")) { // in llama-server the last chunk has them
            end["timings"] = last.at("timings");
            last.erase("timings");
        }
        chunks.push_back(end);
    }
    return chunks;
}

// A chat's stream says first who speaks, also where no token did.
static json with_role(const json & chunks) {
    json first = chunks.front();
    json & choice           = first.at("choices").at(0);
    choice["delta"]         = json{ { "role", "assistant" }, { "content", nullptr } };
    choice["finish_reason"] = nullptr;
    first.erase("timings");
    json all = json::array();
    all.push_back(first);
    all.insert(chunks);
    return all;
}

static std::string without_prefix(const std::string & text, const std::string & prefix) {
    return text.compare(0, prefix.size(), prefix) == 0 ? text.substr(prefix.size()) : text;
}

// -- the answers that have no frame ----------------------------------------------------------------------------------

static json partial_json(pyggml_formatter & f, const pyggml_token_event & p) {
    const bool is_progress = p.progress.has_value();
    server_task_result_cmpl_partial res;
    res.id_slot               = -1; // as llama-server, which leaves it unset in partial results
    res.index                 = size_t(f.index);
    res.content               = p.content;
    res.n_decoded             = p.n_decoded;
    res.n_prompt_tokens       = p.n_prompt_tokens;
    res.n_prompt_tokens_cache = p.n_prompt_tokens_cache;
    res.post_sampling_probs   = f.params.post_sampling_probs;
    res.is_progress           = is_progress;
    res.progress              = p.progress.value_or(result_prompt_progress());
    res.tokens.assign(1, p.token);
    res.prob_output       = p.probs;
    res.stats             = p.stats;
    res.verbose           = f.params.verbose;
    res.res_type          = f.params.res_type;
    res.oaicompat_model   = f.params.oaicompat_model;
    res.oaicompat_cmpl_id = f.params.oaicompat_cmpl_id;
    if (f.params.res_type == TASK_RESPONSE_TYPE_OAI_CHAT && !is_progress) {
        res.n_decoded = f.has_begun ? 2 : 1; // 1 means there: say who speaks
    }
    f.has_begun = f.has_begun || !is_progress;
    res.update(f.state);
    return res.to_json();
}

static json final_json(pyggml_request & request, pyggml_formatter & f, const final_payload & p) {
    server_task_result_cmpl_final res;
    res.id_slot               = p.id_slot;
    res.index                 = size_t(f.index);
    res.content               = p.content;
    res.tokens                = p.tokens;
    res.stream                = f.params.stream;
    res.include_usage         = false; // comes behind the last answer of the request
    res.stats                 = p.stats;
    res.prompt                = common_detokenize(request.server->vocab, f.prompt, true);
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
    res.oaicompat_msg.content           = without_prefix(res.oaicompat_msg.content, f.prefilled.content);
    res.oaicompat_msg.reasoning_content = without_prefix(res.oaicompat_msg.reasoning_content, f.prefilled.reasoning_content);
    json j = res.to_json();
    if (f.params.stream && pyggml_is_openai(request.res_type)) {
        j = last_chunks(request, f, j);
        if (request.res_type == TASK_RESPONSE_TYPE_OAI_CHAT && !f.has_begun) {
            j = with_role(j);
        }
    }
    return j;
}

// -- the answers that have one ---------------------------------------------------------------------------------------

template <class P> static pyggml_answer_facts facts_of(const P & p) {
    pyggml_answer_facts facts;
    facts.n_prompt_tokens       = p.n_prompt_tokens;
    facts.n_prompt_tokens_cache = p.n_prompt_tokens_cache;
    facts.n_decoded             = p.n_decoded;
    facts.stats                 = p.stats;
    return facts;
}

static json framed_part(pyggml_formatter & f, const pyggml_token_event & p) {
    pyggml_diffs diffs;
    if (!p.progress) {
        f.state.update_chat_msg(p.content, true, diffs);
    }
    return f.answer->add(f.calls.settle(diffs, false), facts_of(p), p.progress ? &*p.progress : nullptr);
}

static json framed_end(pyggml_formatter & f, const final_payload & p) {
    pyggml_diffs        diffs;
    pyggml_answer_facts facts   = facts_of(p);
    facts.stop                  = p.stop;
    facts.stopping_word         = p.stopping_word;
    const common_chat_msg msg   = f.state.update_chat_msg(p.content, false, diffs);
    if (msg.empty() && !p.content.empty()) { // as llama-server: what could not be parsed is text
        diffs.emplace_back().content_delta = p.content;
    }
    const json events = f.answer->end(f.calls.settle(diffs, true), facts);
    return f.params.stream ? events : f.answer->whole();
}

// -- entry points ----------------------------------------------------------------------------------------------------

static json payload_json(pyggml_request & request, pyggml_formatter & f, payload_reader & reader) {
    payload_kind kind;
    reader.field(kind);
    if (kind == payload_kind::embedding) {
        return pyggml_embedding_json(request, f, reader);
    }
    final_payload p;
    p.visit(reader);
    count_usage(request, f, p);
    return f.answer ? framed_end(f, p) : final_json(request, f, p);
}

static std::string to_events(task_response_type type, const json & j) {
    switch (type) {
        case TASK_RESPONSE_TYPE_ANTHROPIC: return format_anthropic_sse(j);
        case TASK_RESPONSE_TYPE_OAI_RESP:  return format_oai_resp_sse(j);
        default:                           return format_oai_sse(j);
    }
}

std::string pyggml_format_event(pyggml_formatter & f, const pyggml_token_event & event) {
    pyggml_budget               budget(pyggml_limits_for_token()); // parsers look at all of the text
    std::lock_guard<std::mutex> lock(f.mutex);
    json                        j = f.answer ? framed_part(f, event) : partial_json(f, event);
    set_created(j, f.created_s);
    return j == nullptr ? std::string() : to_events(f.params.res_type, j);
}

extern "C" int pyggml_request_format(pyggml_request * request, int32_t i, const uint8_t * payload, size_t size,
                                     int as_stream, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        pyggml_budget budget(pyggml_limits_for_body(size, nullptr)); // parsers look at the text
        if (i < 0 || size_t(i) >= request->formatters.size()) {
            throw std::invalid_argument("the request has no task " + std::to_string(i));
        }
        pyggml_formatter &          f = *request->formatters[i];
        std::lock_guard<std::mutex> lock(f.mutex);
        payload_reader              reader{ payload, payload + size };
        json                        j = payload_json(*request, f, reader);
        set_created(j, request->created_s);
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
        const json inner  = json::parse(std::string(error, size));
        auto &     f      = *request->formatters.at(0);
        auto *     answer = f.answer.get();
        std::lock_guard<std::mutex> lock(f.mutex);
        pyggml_bytes_assign(out, answer != nullptr ? to_events(request->res_type, answer->error_events(inner)) :
                                                     format_oai_sse(json{ { "error", inner } }));
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
        first["usage"]   = usage_json(request->usage);
        pyggml_bytes_assign(out, safe_json_to_str(first));
    });
}
