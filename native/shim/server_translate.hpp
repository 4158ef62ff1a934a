// What the translations share: refusals, the check of tokens, and chats of the three APIs. Internal to the shim.
#pragma once

#include "budget.hpp"
#include "server_types.hpp"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

// A request that is refused with an error of this type. Whatever else reading a body throws is the body's fault too.
struct pyggml_request_refused : std::exception {
    std::string message;
    error_type  type;

    pyggml_request_refused(std::string message, error_type type) : message(std::move(message)), type(type) {}
    const char * what() const noexcept override { return message.c_str(); }
};

// Whose fault an exception is that reading a body throws. llama.cpp says by its words only that this server was started
// without what a picture or a sound needs: that is the server's.
inline error_type pyggml_fault_of(const std::string & what) {
    return what.find(" input is not supported - hint:") != std::string::npos ? ERROR_TYPE_SERVER :
                                                                              ERROR_TYPE_INVALID_REQUEST;
}

// Writes llama-server's error object.
void pyggml_refuse(pyggml_bytes * refusal, const std::string & message, error_type type);

// Runs `f`, which reads a body, within the limits; what it throws becomes a refusal. True if it threw.
template <class F> bool pyggml_refused_by(pyggml_bytes * refusal, const pyggml_budget_limits & limits, F && f) {
    const char * exceeded = nullptr;
    try {
        pyggml_budget budget(limits);
        try {
            f();
            return false;
        } catch (...) {
            exceeded = budget.exceeded();
            throw;
        }
    } catch (const pyggml_request_refused & e) {
        pyggml_refuse(refusal, e.message, e.type);
    } catch (const std::exception & e) {
        if (exceeded == nullptr && dynamic_cast<const std::bad_alloc *>(&e) != nullptr) {
            throw;
        }
        if (exceeded != nullptr) {
            pyggml_give_memory_back();
        }
        const std::string what = exceeded != nullptr ? exceeded : e.what();
        pyggml_refuse(refusal, what, pyggml_fault_of(what));
    }
    return true;
}

// Throws std::invalid_argument for a token that the vocabulary does not have.
void pyggml_check_tokens(const pyggml_server & server, const llama_tokens & tokens);

// Throws std::invalid_argument for a number in the arrays of a prompt that is no token, before it is read as one.
void pyggml_check_token_numbers(const pyggml_server & server, const common_json & prompt);

// A chat in the API that `type` names becomes llama.cpp's own completion body, its prompt made by the chat template.
// `files` gets its images.
common_json pyggml_chat_to_completion(const pyggml_server & server, task_response_type type, const common_json & body,
                                      std::vector<raw_buffer> & files);

// A transcription's body becomes one whose prompt has the sound in it. `file` may be NULL. Throws as above, and
// pyggml_request_refused where the model does not hear.
common_json pyggml_transcription_to_completion(const pyggml_server & server, const std::string & body,
                                               const raw_buffer * file, std::vector<raw_buffer> & files);

// A Responses body as a body of chat completions.
common_json pyggml_responses_to_chat(const common_json & body);

// So does an infill body, its prompt made of the model's FIM tokens: it is parsed once the model is found to have some.
// Throws as above.
common_json pyggml_infill_to_completion(const pyggml_server & server, const std::string & body);
