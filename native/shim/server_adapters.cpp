// LoRA adapters: the scales in force, those of a request, and the switch between them before a decode.
//
// An activated adapter (aLoRA) works from its invocation tokens on; the tokens before them are decoded without it.
#include "server_adapters.hpp"

#include "server_translate.hpp"

#include <algorithm>

using json     = common_json;
using adapters = std::vector<common_adapter_lora_info>;

static adapters current_adapters(const pyggml_server & server) {
    const std::lock_guard<std::mutex> lock(server.adapters_mutex);
    return server.adapters;
}

// An adapter that `scales` leaves out is off.
static adapters with_scales(adapters all, const std::map<int, float> & scales) {
    for (size_t i = 0; i < all.size(); ++i) {
        const auto it = scales.find(int(i));
        all[i].scale  = it == scales.end() ? 0.0f : it->second;
    }
    return all;
}

static std::vector<float> scales_of(const adapters & all) {
    std::vector<float> scales;
    for (const auto & adapter : all) {
        scales.push_back(adapter.scale);
    }
    return scales;
}

// -- what the server has ---------------------------------------------------------------------------------------------

json pyggml_adapters_json(const pyggml_server & server) {
    server_task_result_get_lora res;
    for (const auto & adapter : current_adapters(server)) {
        const llama_token * tokens = llama_adapter_get_alora_invocation_tokens(adapter.ptr);
        const llama_tokens  invocation(tokens, tokens + llama_adapter_get_alora_n_invocation_tokens(adapter.ptr));
        std::string         text;
        for (const llama_token token : invocation) {
            text += common_token_to_piece(server.vocab, token);
        }
        res.loras.push_back({ adapter, text, invocation });
    }
    return res.to_json();
}

json pyggml_set_adapters(const pyggml_server & server, const json & body) {
    if (!body.is_array()) {
        throw pyggml_request_refused("Request body must be an array", ERROR_TYPE_INVALID_REQUEST);
    }
    const auto                        scales = parse_lora_request(body);
    const std::lock_guard<std::mutex> lock(server.adapters_mutex);
    server.adapters = with_scales(server.adapters, scales);
    return server_task_result_apply_lora().to_json();
}

// -- what a task uses ------------------------------------------------------------------------------------------------

// Where the last occurrence of the adapter's invocation tokens begins, or the end of the prompt.
static llama_tokens::const_iterator find_invocation(const llama_tokens & prompt, const llama_adapter_lora * adapter) {
    const llama_token * tokens = llama_adapter_get_alora_invocation_tokens(adapter);
    return std::find_end(prompt.begin(), prompt.end(), tokens,
                         tokens + llama_adapter_get_alora_n_invocation_tokens(adapter));
}

static void choose_activated(pyggml_task & task) {
    const auto enabled = lora_get_enabled_ids(task.adapters);
    if (enabled.size() != 1) {
        throw std::invalid_argument("Cannot run multiple aLoRAs in a single request");
    }
    common_adapter_lora_info & adapter = task.adapters[enabled[0]];
    const auto                 at      = find_invocation(task.tokens, adapter.ptr);
    task.base_adapters[enabled[0]].scale = 0.0f;
    if (at == task.tokens.end()) {
        adapter.scale = 0.0f;
    } else {
        // as in llama-server, the token before the invocation is the first one with the adapter
        task.scales_from = std::max(0, int32_t(at - task.tokens.begin()) - 1);
    }
}

void pyggml_task_choose_adapters(pyggml_task & task) {
    task.adapters = current_adapters(*task.server);
    if (!task.params.lora.empty()) {
        task.adapters = with_scales(task.adapters, task.params.lora);
    }
    task.base_adapters = task.adapters;
    if (lora_all_alora(task.adapters)) {
        choose_activated(task);
    }
    task.scales      = scales_of(task.adapters);
    task.base_scales = scales_of(task.base_adapters);
}

void pyggml_use_adapters(llama_context * ctx, const pyggml_row & row) {
    const bool is_before = row.n_prompt_tokens > 0 && row.n_past - row.n_prompt_tokens < row.task->scales_from;
    common_set_adapter_lora(ctx, is_before ? row.task->base_adapters : row.task->adapters);
}
