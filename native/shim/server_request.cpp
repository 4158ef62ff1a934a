// Translation of HTTP bodies to tasks. Any thread, one at a time per request.
#include "server_adapters.hpp"
#include "server_embeddings.hpp"
#include "server_media.hpp"
#include "server_translate.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>

using json = common_json;

void pyggml_refuse(pyggml_bytes * refusal, const std::string & message, error_type type) {
    pyggml_bytes_assign(refusal, safe_json_to_str(format_error_response(message, type)));
}

void pyggml_check_tokens(const pyggml_server & server, const llama_tokens & tokens) {
    const llama_token n_vocab = llama_vocab_n_tokens(server.vocab);
    if (std::any_of(tokens.begin(), tokens.end(), [&](llama_token t) { return t < 0 || t >= n_vocab; })) {
        throw std::invalid_argument("Prompt contains invalid tokens");
    }
}

void pyggml_check_token_numbers(const pyggml_server & server, const json & prompt) {
    const double n_vocab = double(llama_vocab_n_tokens(server.vocab));
    if (prompt.is_number()) {
        const double id = prompt.get<double>();
        if (id < 0 || id >= n_vocab || id != std::floor(id)) {
            throw std::invalid_argument("Prompt contains invalid tokens");
        }
    } else if (prompt.is_array()) {
        for (const json & part : prompt) {
            pyggml_check_token_numbers(server, part);
        }
    }
}

static task_response_type response_type(int kind) {
    switch (kind) {
        case PYGGML_REQUEST_COMPLETION:     return TASK_RESPONSE_TYPE_NONE;
        case PYGGML_REQUEST_OAI_COMPLETION: return TASK_RESPONSE_TYPE_OAI_CMPL;
        case PYGGML_REQUEST_OAI_CHAT:       return TASK_RESPONSE_TYPE_OAI_CHAT;
        case PYGGML_REQUEST_OAI_RESPONSES:  return TASK_RESPONSE_TYPE_OAI_RESP;
        case PYGGML_REQUEST_ANTHROPIC:      return TASK_RESPONSE_TYPE_ANTHROPIC;
        case PYGGML_REQUEST_OAI_EMBEDDING:  return TASK_RESPONSE_TYPE_OAI_EMBD;
        case PYGGML_REQUEST_TRANSCRIPTION:  return TASK_RESPONSE_TYPE_OAI_ASR;
        case PYGGML_REQUEST_INFILL:
        case PYGGML_REQUEST_EMBEDDING:
        case PYGGML_REQUEST_RERANK:         return TASK_RESPONSE_TYPE_NONE;
    }
    throw std::invalid_argument("unknown request kind " + std::to_string(kind));
}

static server_task_type task_type(int kind) {
    switch (kind) {
        case PYGGML_REQUEST_INFILL:        return SERVER_TASK_TYPE_INFILL;
        case PYGGML_REQUEST_EMBEDDING:
        case PYGGML_REQUEST_OAI_EMBEDDING: return SERVER_TASK_TYPE_EMBEDDING;
        case PYGGML_REQUEST_RERANK:        return SERVER_TASK_TYPE_RERANK;
        default:                           return SERVER_TASK_TYPE_COMPLETION;
    }
}

// A prompt as its tasks get it.
struct prompt_input {
    llama_tokens                         tokens; // LLAMA_TOKEN_NULL where they are of an image
    llama_tokens                         text; // all others
    std::shared_ptr<pyggml_media_prompt> media;
    std::vector<int32_t>                 user_starts;
};

// Adds the task of the request's next result index.
static void add_task(pyggml_request & request, const prompt_input & prompt, const task_params & params, int id_slot) {
    const pyggml_server & server = *request.server;
    const int32_t         index  = int32_t(request.tasks.size());
    auto                  task   = std::make_unique<pyggml_task>();
    task->server                 = &server;
    task->type                   = request.type;
    task->params                 = params;
    task->tokens                 = prompt.tokens;
    task->media                  = prompt.media;
    task->user_starts            = prompt.user_starts;
    task->index                  = index;
    task->id_slot_wanted         = id_slot;
    task->params_json            = safe_json_to_str(params.to_json(true));
    pyggml_task_choose_adapters(*task);
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
    task->formatter = std::make_shared<pyggml_formatter>(params, prompt.text, index);
    task->formatter->created_s = request.created_s;
    task->formatter->body      = request.body;
    request.formatters.push_back(task->formatter);
    request.tasks.push_back(std::move(task));
}

// A prompt with n > 1 becomes a task and its children, each with the next seed.
static void add_prompt(pyggml_request & request, const prompt_input & prompt, const json & data, int id_slot) {
    const pyggml_server & server = *request.server;
    pyggml_check_tokens(server, prompt.text);
    task_params params = server_schema::eval_llama_cmpl_schema(server.vocab, server.params,
                                                               server.params.sampling.logit_bias_eog, data);
    auto & words = params.antiprompt; // an empty one would be found at once
    words.erase(std::remove(words.begin(), words.end(), std::string()), words.end());
    request.sse_ping_interval_s      = params.sse_ping_interval;
    const uint32_t seed              = params.sampling.seed;
    const int32_t  i_parent          = int32_t(request.tasks.size());
    for (int i = 0; i < params.n_cmpl; ++i) {
        if (seed != LLAMA_DEFAULT_SEED) {
            params.sampling.seed = seed + uint32_t(i);
        }
        add_task(request, prompt, params, i == 0 ? id_slot : -1);
        request.tasks.back()->i_parent = i == 0 ? -1 : i_parent;
        request.formatters.back()->shares_prompt = i > 0;
    }
    request.tasks[size_t(i_parent)]->n_children = params.n_cmpl - 1;
}

// --log-prompts-dir: the prompt in a file that is named for the time, as llama-server writes it.
static void log_prompt(const std::string & folder, const json & prompt) {
    if (folder.empty()) {
        return;
    }
    const auto    path = std::filesystem::path(folder) / string_format("%012" PRId64 ".txt", ggml_time_ms());
    std::ofstream file(path);
    file << (prompt.is_string() ? prompt.get<std::string>() : prompt.dump(2));
    if (!file) {
        SRV_ERR("failed to create %s\n", path.string().c_str());
    }
}

static prompt_input as_input(const pyggml_server & server, server_tokens && tokens,
                             const common_chat_msg_delimiters & delimiters) {
    prompt_input prompt;
    prompt.tokens = pyggml_all_tokens(tokens);
    prompt.text   = tokens.get_text_tokens();
    for (const auto & span : tokens.find_message_spans(delimiters).spans) {
        if (span.role == COMMON_CHAT_ROLE_USER) {
            prompt.user_starts.push_back(int32_t(span.pos));
        }
    }
    if (prompt.text.size() < prompt.tokens.size()) {
        prompt.media = std::make_shared<pyggml_media_prompt>(server, std::move(tokens));
    }
    return prompt;
}

static bool is_chat(task_response_type type) {
    return type == TASK_RESPONSE_TYPE_OAI_CHAT || type == TASK_RESPONSE_TYPE_OAI_RESP ||
           type == TASK_RESPONSE_TYPE_ANTHROPIC;
}

// Whether its prompt is that of a chat, with the files that came with it.
static bool has_chat_prompt(task_response_type type) {
    return is_chat(type) || type == TASK_RESPONSE_TYPE_OAI_ASR;
}

// What frames the events of the APIs that have frames; NULL for the others.
static std::unique_ptr<pyggml_answer> new_answer(const pyggml_request & request, const std::string & completion_id) {
    const pyggml_server & server = *request.server;
    switch (request.res_type) {
        case TASK_RESPONSE_TYPE_OAI_RESP:
            return pyggml_responses_answer(*request.body, server.vocab, server.model_name, request.created_s);
        case TASK_RESPONSE_TYPE_ANTHROPIC:
            return pyggml_messages_answer(*request.body, server.model_name, completion_id);
        default:
            return nullptr;
    }
}

static void add_tasks(pyggml_request & request, const json & data, const std::vector<raw_buffer> & files,
                      const std::string & completion_id) {
    const pyggml_server & server = *request.server;
    log_prompt(server.params.path_prompts_log_dir, data.at("prompt"));
    pyggml_check_token_numbers(server, data.at("prompt"));
    auto inputs = pyggml_tokenize_prompts(server, data.at("prompt"), files, has_chat_prompt(request.res_type));
    auto delimiters = common_chat_msg_delimiters_parse(json_value(data, "message_delimiters", json::array()));
    delimiters.tokenize(server.vocab);
    const int id_slot = json_value(data, "id_slot", -1);
    for (auto & input : inputs) {
        add_prompt(request, as_input(server, std::move(input), delimiters), data, id_slot);
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
        request.formatters[i]->answer = new_answer(request, completion_id);
    }
    request.stream = json_value(data, "stream", false);
}

// The tasks of a body, in the request.
static void read_body(pyggml_request & request, const std::string & body, const raw_buffer * file) {
    if (pyggml_embeds(request.type)) {
        pyggml_add_embedding_tasks(request, body);
        return;
    }
    json                    data;
    std::vector<raw_buffer> files;
    if (request.res_type == TASK_RESPONSE_TYPE_OAI_ASR) {
        data = pyggml_transcription_to_completion(*request.server, body, file, files);
    } else if (request.type == SERVER_TASK_TYPE_INFILL) {
        data = pyggml_infill_to_completion(*request.server, body);
    } else {
        data = json::parse(body);
    }
    if (is_chat(request.res_type)) {
        *request.body = data;
        data         = pyggml_chat_to_completion(*request.server, request.res_type, *request.body, files);
    }
    add_tasks(request, data, files, gen_chatcmplid());
}

extern "C" int pyggml_request_parse(const pyggml_server * server, int kind, const char * body, size_t size,
                                    const char * file, size_t file_size, const int32_t * is_abandoned,
                                    pyggml_request ** out, pyggml_bytes * refusal, pyggml_error * err) {
    *out     = nullptr;
    *refusal = {};
    return pyggml_guard(err, [&] {
        auto request      = std::make_unique<pyggml_request>();
        request->server    = server;
        request->res_type  = response_type(kind);
        request->type      = task_type(kind);
        request->created_s = int64_t(std::time(nullptr));
        const auto       limits = pyggml_limits_for_body(size + file_size, is_abandoned);
        const raw_buffer upload(file, file + file_size);
        const auto       read = [&] { read_body(*request, std::string(body, size), file == nullptr ? nullptr : &upload); };
        if (!pyggml_refused_by(refusal, limits, read)) {
            *out = request.release();
        }
    });
}

extern "C" void pyggml_request_free(pyggml_request * request) {
    delete request;
}

extern "C" void pyggml_request_get_info(const pyggml_request * request, pyggml_request_info * out) {
    out->n_tasks             = int32_t(request->formatters.size());
    out->stream              = request->stream;
    out->ends_with_done      = pyggml_is_openai(request->res_type) || request->res_type == TASK_RESPONSE_TYPE_OAI_ASR;
    out->sse_ping_interval_s = request->sse_ping_interval_s;
}

extern "C" pyggml_task * pyggml_request_take_task(pyggml_request * request, int32_t i) {
    if (i < 0 || size_t(i) >= request->tasks.size()) {
        return nullptr;
    }
    return request->tasks[i].release();
}
