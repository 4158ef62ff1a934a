// A prompt with images or sounds in it, and what loads and reads them. Internal to the shim.
#pragma once

#include "server_media.h"
#include "server_types.hpp"

#include <memory>
#include <mutex>
#include <vector>

// Images and sounds of one prompt. All but `encoded` is never changed.
struct pyggml_media_prompt {
    struct run {
        int32_t     start;
        int32_t     n_tokens;
        int32_t     n_pos;
        std::string id;
    };

    const pyggml_server *                    server;
    server_tokens                            tokens; // has the chunks
    std::vector<run>                         runs;
    mutable std::mutex                       mutex; // of `encoded`
    std::vector<std::shared_ptr<mtmd_batch>> encoded; // of each run: where its embeddings are, or NULL

    // Throws std::invalid_argument for a prompt that cannot be decoded.
    pyggml_media_prompt(const pyggml_server & server, server_tokens && tokens);

    const mtmd_input_chunk * chunk(size_t i) const { return tokens.find_chunk(size_t(runs[i].start)).get(); }
    llama_pos                n_pos() const; // that all of them take
    std::shared_ptr<mtmd_batch> take(size_t i);
};

// Adds what the encoder takes of each device to what loading the model leaves free there (--fit).
void pyggml_media_reserve(common_params & params);

// Loads the encoder that --mmproj names, if it does, and switches off what does not go together with images.
void pyggml_media_load(pyggml_server & server);

// Whether bodies may have images, and sounds.
bool pyggml_sees(const pyggml_server & server);
bool pyggml_hears(const pyggml_server & server);

// The prompts of a completion's body. `files`: those of a chat, in the order of their places in its prompt.
std::vector<server_tokens> pyggml_tokenize_prompts(const pyggml_server & server, const common_json & prompt,
                                                   const std::vector<raw_buffer> & files, bool is_chat);

// One prompt in the shapes of /completion.
server_tokens pyggml_tokenize_prompt(const pyggml_server & server, const common_json & prompt);
// The parts of an OpenAI message, one behind the other, without a chat template.
server_tokens pyggml_tokenize_content(const pyggml_server & server, const common_json & content);

// How many tokens a chat's prompt has.
size_t pyggml_count_prompt(const pyggml_server & server, const std::string & prompt,
                           const std::vector<raw_buffer> & files);

// The tokens as the engine has them, LLAMA_TOKEN_NULL where they are of an image.
llama_tokens pyggml_all_tokens(const server_tokens & tokens);

// Whether the reader takes the file for a sound, whatever comes of that. All others are images to it.
bool pyggml_is_sound(const raw_buffer & file);
// Throws std::invalid_argument for a sound that cannot be read, is longer than is read, or shorter than it says.
int64_t pyggml_n_samples(const raw_buffer & file, int sample_rate);

// Throws std::invalid_argument for a file that is no image, or a larger one than is read.
int64_t pyggml_n_pixels(const raw_buffer & file);
// Throws std::invalid_argument for an image that is written so that reading it takes far more than its size.
void pyggml_check_image(const raw_buffer & file);

// Throws std::invalid_argument for a chat with an image or a sound that would have to be fetched: that is done before.
void pyggml_refuse_remote_media(const common_json & chat);
