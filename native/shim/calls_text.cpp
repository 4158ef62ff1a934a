// Tokens to text and back, and the built-in chat templates: see calls.h.
#include "call_guard.hpp"
#include "calls.h"

extern "C" {

int pyggml_tokenize(const struct llama_vocab * vocab, const char * text, int32_t n_bytes, llama_token * tokens,
                    int32_t n_tokens_max, bool add_special, bool parse_special, int32_t * n, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *n = llama_tokenize(vocab, text, n_bytes, tokens, n_tokens_max, add_special, parse_special);
        return *n != INT32_MIN ? PYGGML_OK : pyggml_fail(err, PYGGML_E_INVALID, "the text has more than 2^31 tokens");
    });
}

int pyggml_detokenize(const struct llama_vocab * vocab, const llama_token * tokens, int32_t n_tokens, char * text,
                      int32_t n_bytes_max, bool remove_special, bool unparse_special, int32_t * n,
                      pyggml_error * err) {
    return pyggml_call(err, [&] {
        *n = llama_detokenize(vocab, tokens, n_tokens, text, n_bytes_max, remove_special, unparse_special);
    });
}

int pyggml_token_to_piece(const struct llama_vocab * vocab, llama_token token, char * text, int32_t n_bytes_max,
                          bool special, int32_t * n, pyggml_error * err) {
    return pyggml_call(err, [&] { *n = llama_token_to_piece(vocab, token, text, n_bytes_max, 0, special); });
}

int pyggml_chat_apply_template(const char * tmpl, const struct llama_chat_message * messages, size_t n_messages,
                               bool add_assistant, char * text, int32_t n_bytes_max, int32_t * n, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        *n = llama_chat_apply_template(tmpl, messages, n_messages, add_assistant, text, n_bytes_max);
        return *n >= 0 ? PYGGML_OK : pyggml_fail(err, PYGGML_E_INVALID, "this chat template is not built in");
    });
}

} // extern "C"
