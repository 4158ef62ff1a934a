// LoRA adapters: what the server has, and which of them a task uses. Internal to the shim.
#pragma once

#include "server_types.hpp"

// The answer to GET /lora-adapters; any thread.
common_json pyggml_adapters_json(const pyggml_server & server);
// Changes the scales for tasks that are translated from now on; any thread. Throws what becomes a refusal.
common_json pyggml_set_adapters(const pyggml_server & server, const common_json & body);

// Gives the task, whose parameters and tokens are set, its adapters. Throws what becomes a refusal.
void pyggml_task_choose_adapters(pyggml_task & task);
// Puts the adapters for this row's tokens in force. Engine thread.
void pyggml_use_adapters(llama_context * ctx, const pyggml_row & row);
