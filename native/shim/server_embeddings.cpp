// Embeddings and reranking: bodies to tasks, the vectors out of the context, results to JSON.
//
// `pyggml_task_embed` on the engine thread, the rest on any thread, one at a time per request.
#include "server_embeddings.hpp"

#include "server_adapters.hpp"
#include "server_media.hpp"
#include "server_task.hpp"
#include "server_translate.hpp"

#include <algorithm>

using json = common_json;

// -- body to tasks ---------------------------------------------------------------------------------------------------

static void add_task(pyggml_request & request, server_tokens && tokens, const task_params & params) {
    const pyggml_server & server = *request.server;
    const int32_t         index  = int32_t(request.tasks.size());
    const llama_tokens    text   = tokens.get_text_tokens();
    pyggml_check_tokens(server, text);
    auto task         = std::make_unique<pyggml_task>();
    task->server      = &server;
    task->type        = request.type;
    task->params      = params;
    task->tokens      = pyggml_all_tokens(tokens);
    task->index       = index;
    task->params_json = safe_json_to_str(params.to_json(true));
    if (text.size() < task->tokens.size()) {
        task->media = std::make_shared<pyggml_media_prompt>(server, std::move(tokens));
    }
    pyggml_task_choose_adapters(*task);
    task->formatter = std::make_shared<pyggml_formatter>(params, text, index);
    request.formatters.push_back(task->formatter);
    request.tasks.push_back(std::move(task));
}

// A prompt in one of the shapes of /completion, or an OpenAI message's content.
static server_tokens tokenize(const pyggml_server & server, const json & prompt) {
    if (prompt.is_object() && prompt.contains("content")) {
        return pyggml_tokenize_content(server, prompt.at("content"));
    }
    return pyggml_tokenize_prompt(server, prompt);
}

static std::vector<server_tokens> tokenize_all(const pyggml_server & server, const json & prompt) {
    std::vector<server_tokens> all;
    pyggml_check_token_numbers(server, prompt);
    if (prompt.is_array() && !json_is_array_and_contains_numbers(prompt)) {
        for (const auto & p : prompt) {
            all.push_back(tokenize(server, p));
        }
    } else {
        all.push_back(tokenize(server, prompt));
    }
    if (all.empty()) {
        throw pyggml_request_refused("\"input\" must not be empty", ERROR_TYPE_INVALID_REQUEST);
    }
    for (const auto & tokens : all) {
        if (tokens.empty()) {
            throw pyggml_request_refused("Input content cannot be empty", ERROR_TYPE_INVALID_REQUEST);
        }
    }
    return all;
}

static bool wants_base64(const json & body) {
    if (!body.contains("encoding_format")) {
        return false;
    }
    const std::string format = body.at("encoding_format");
    if (format != "base64" && format != "float") {
        throw pyggml_request_refused("The format to return the embeddings in. Can be either float or base64",
                              ERROR_TYPE_INVALID_REQUEST);
    }
    return format == "base64";
}

static void add_embeddings(pyggml_request & request, const json & body) {
    const pyggml_server & server = *request.server;
    json prompt;
    if (body.contains("input")) {
        prompt = body.at("input");
    } else if (body.contains("content")) {
        request.res_type = TASK_RESPONSE_TYPE_NONE; // OpenAI's API has no such field
        prompt           = body.at("content");
    } else {
        throw pyggml_request_refused("\"input\" or \"content\" must be provided", ERROR_TYPE_INVALID_REQUEST);
    }
    wants_base64(body);
    auto all = tokenize_all(server, prompt);

    task_params params;
    params.res_type       = request.res_type;
    params.embd_normalize = server.params.embd_normalize;
    if (body.contains("embd_normalize")) {
        params.embd_normalize = body.at("embd_normalize").get<int>();
    }
    for (auto & tokens : all) {
        add_task(request, std::move(tokens), params);
    }
}

static void add_ranks(pyggml_request & request, const json & body) {
    const auto refuse = [](const char * message) { throw pyggml_request_refused(message, ERROR_TYPE_INVALID_REQUEST); };
    const pyggml_server & server = *request.server;
    if (!body.contains("query")) {
        refuse("\"query\" must be provided");
    }
    const json query = body.at("query");
    if (!query.is_string()) {
        refuse("\"query\" must be a string");
    }
    const auto texts  = json_value(body, "texts", std::vector<std::string>());
    request.documents = json_value(body, "documents", texts);
    if (json_value(body, "top_n", 0.0) < 0) {
        refuse("\"top_n\" must not be negative");
    }
    if (request.documents.empty()) {
        refuse("\"documents\" must be a non-empty string array");
    }
    for (const auto & document : request.documents) {
        auto prompt = format_prompt_rerank(server.model, server.vocab, nullptr, query, document, server.init_opt);
        add_task(request, std::move(prompt), task_params());
    }
}

// What the server was not started for is refused.
static void check_purpose(const pyggml_request & request) {
    const common_params & params = request.server->params;
    if (request.type == SERVER_TASK_TYPE_EMBEDDING && !params.embedding) {
        throw pyggml_request_refused("This server does not support embeddings. Start it with `--embeddings`",
                                     ERROR_TYPE_NOT_SUPPORTED);
    }
    if (request.type == SERVER_TASK_TYPE_RERANK &&
        (!params.embedding || params.pooling_type != LLAMA_POOLING_TYPE_RANK)) {
        throw pyggml_request_refused("This server does not support reranking. Start it with `--reranking`",
                                     ERROR_TYPE_NOT_SUPPORTED);
    }
    if (request.res_type == TASK_RESPONSE_TYPE_OAI_EMBD &&
        llama_pooling_type(request.server->ctx) == LLAMA_POOLING_TYPE_NONE) {
        throw pyggml_request_refused("Pooling type 'none' is not OAI compatible. Please use a different pooling type",
                                     ERROR_TYPE_INVALID_REQUEST);
    }
}

void pyggml_add_embedding_tasks(pyggml_request & request, const std::string & body) {
    check_purpose(request);
    *request.body = json::parse(body);
    if (request.type == SERVER_TASK_TYPE_RERANK) {
        add_ranks(request, *request.body);
    } else {
        add_embeddings(request, *request.body);
    }
}

// -- the vectors -----------------------------------------------------------------------------------------------------

static const float * embedding_of(llama_context * ctx, int32_t i_batch, llama_seq_id seq_id) {
    const bool    is_pooled = llama_pooling_type(ctx) != LLAMA_POOLING_TYPE_NONE;
    const float * values    = is_pooled ? llama_get_embeddings_seq(ctx, seq_id) : llama_get_embeddings_ith(ctx, i_batch);
    if (values == nullptr) {
        throw std::runtime_error("the context gave no embedding for this prompt");
    }
    return values;
}

void pyggml_task_embed(pyggml_task & task, llama_context * ctx, const pyggml_row & row, llama_seq_id seq_id) {
    task.stats.update_prompt_last();
    if (task.type == SERVER_TASK_TYPE_RERANK) {
        task.score = embedding_of(ctx, row.i_batch, seq_id)[0];
        return;
    }
    const size_t n = size_t(llama_model_n_embd_out(task.server->model));
    task.embedding.clear();
    if (llama_pooling_type(ctx) != LLAMA_POOLING_TYPE_NONE) {
        task.embedding.emplace_back(n);
        common_embd_normalize(embedding_of(ctx, row.i_batch, seq_id), task.embedding[0].data(), int(n),
                              task.params.embd_normalize);
        return;
    }
    for (int32_t i = row.i_batch - row.n_prompt_tokens + 1; i <= row.i_batch; ++i) {
        const float * values = embedding_of(ctx, i, seq_id);
        task.embedding.emplace_back(values, values + n);
    }
}

std::string pyggml_embedding_payload(const pyggml_task & task) {
    embedding_payload p;
    p.n_tokens = int32_t(task.tokens.size());
    p.rows     = task.embedding;
    p.score    = task.score;
    return payload_write(payload_kind::embedding, p);
}

bool pyggml_task_is_whole(const pyggml_task & task) {
    llama_context * ctx = task.server->ctx;
    if (!task.embeds()) {
        return false;
    }
    if (llama_get_memory(ctx) == nullptr) {
        return true;
    }
    const auto pooling = llama_pooling_type(ctx);
    return pooling != LLAMA_POOLING_TYPE_LAST && !(pooling == LLAMA_POOLING_TYPE_RANK && llama_get_causal_attn(ctx));
}

// -- results to JSON -------------------------------------------------------------------------------------------------

json pyggml_embedding_json(const pyggml_request & request, const pyggml_formatter & f, payload_reader & reader) {
    embedding_payload p;
    p.visit(reader);
    if (request.type == SERVER_TASK_TYPE_RERANK) {
        server_task_result_rerank res;
        res.index    = size_t(f.index);
        res.score    = p.score;
        res.n_tokens = p.n_tokens;
        return res.to_json();
    }
    server_task_result_embd res;
    res.index     = size_t(f.index);
    res.embedding = p.rows;
    res.n_tokens  = p.n_tokens;
    res.res_type  = f.params.res_type;
    return res.to_json();
}

json pyggml_join_embeddings(const pyggml_request & request, const json & results) {
    const std::string & name = request.server->model_name;
    if (request.type == SERVER_TASK_TYPE_RERANK) {
        auto      documents = request.documents;
        const double n      = double(documents.size());
        const int    top_n  = int(std::min(n, json_value(*request.body, "top_n", n)));
        return format_response_rerank(*request.body, name, results, request.body->contains("texts"), documents, top_n);
    }
    if (request.res_type != TASK_RESPONSE_TYPE_OAI_EMBD) {
        return results;
    }
    return format_embeddings_response_oaicompat(*request.body, name, results, wants_base64(*request.body));
}
