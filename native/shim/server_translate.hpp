// What the translations share: refusals, the check of tokens, and chats of the three APIs. Internal to the shim.
#pragma once

#include "server_types.hpp"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

// A request that llama-server answers with an error of this type. What else is thrown becomes one by its own type.
struct pyggml_request_refused : std::exception {
    std::string message;
    error_type  type;

    pyggml_request_refused(std::string message, error_type type) : message(std::move(message)), type(type) {}
    const char * what() const noexcept override { return message.c_str(); }
};

// Writes llama-server's error object.
void pyggml_refuse(pyggml_bytes * refusal, const std::string & message, error_type type);

// Runs `f`; what it throws becomes a refusal the way llama-server's HTTP wrapper answers it. True if it threw.
template <class F> bool pyggml_refused_by(pyggml_bytes * refusal, F && f) {
    try {
        f();
        return false;
    } catch (const pyggml_request_refused & e) {
        pyggml_refuse(refusal, e.message, e.type);
    } catch (const std::invalid_argument & e) {
        pyggml_refuse(refusal, e.what(), ERROR_TYPE_INVALID_REQUEST);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception & e) {
        pyggml_refuse(refusal, e.what(), ERROR_TYPE_SERVER);
    }
    return true;
}

// Throws std::invalid_argument for a token that the vocabulary does not have.
void pyggml_check_tokens(const pyggml_server & server, const llama_tokens & tokens);

// A chat in the API that `type` names becomes llama.cpp's own completion body, its prompt made by the chat template.
common_json pyggml_chat_to_completion(const pyggml_server & server, task_response_type type, const common_json & body);

// So does an infill body, its prompt made of the model's FIM tokens: it is parsed once the model is found to have some.
// Throws as above.
common_json pyggml_infill_to_completion(const pyggml_server & server, const std::string & body);
