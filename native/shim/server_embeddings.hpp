// Embeddings and reranking, for the files that know all kinds of requests. Internal to the shim.
#pragma once

#include "server_payload.hpp"
#include "server_types.hpp"

// Adds the tasks of such a request, whose type is set. Throws what becomes a refusal.
void pyggml_add_embedding_tasks(pyggml_request & request, const std::string & body);
// The JSON of one of its tasks.
common_json pyggml_embedding_json(const pyggml_request & request, const pyggml_formatter & f, payload_reader & reader);
// The body of the response, from an array of those.
common_json pyggml_join_embeddings(const pyggml_request & request, const common_json & results);
