// Prompts with images and sounds, as bodies have them, to tokens. Any thread.
#include "server_media.hpp"

#include "budget.hpp"

#include "base64.hpp"

#include <stdexcept>

using json = common_json;

static constexpr const char * TEXT_KEY = "prompt_string";
static constexpr const char * DATA_KEY = "multimodal_data";

static constexpr int64_t N_LARGE_PIXELS    = 16 << 20;
static constexpr int64_t N_LARGE_SAMPLES   = 10 << 20; // ten minutes
static constexpr int64_t BYTES_PER_SAMPLE  = 32; // the samples themselves, copies, spectra
static constexpr int64_t CPU_NS_PER_SAMPLE = 2000;

static int64_t n_samples_of(const pyggml_server & server, const raw_buffer & file) {
    const int sample_rate = pyggml_hears(server) ? mtmd_get_audio_sample_rate(server.media.get()) : 0;
    if (sample_rate <= 0) {
        throw std::invalid_argument("Failed to load image or audio file: this model does not hear");
    }
    return pyggml_n_samples(file, sample_rate);
}

static server_tokens tokenize_with_files(const pyggml_server & server, const std::string & prompt,
                                         const std::vector<raw_buffer> & files, bool is_count = false) {
    static std::mutex            large_files; // reading one takes a gigabyte: one after the other
    std::unique_lock<std::mutex> lock(large_files, std::defer_lock);
    int64_t                      n_pixels = 0, n_samples = 0;
    for (const raw_buffer & file : files) {
        if (pyggml_is_sound(file)) {
            n_samples += n_samples_of(server, file);
        } else {
            n_pixels += pyggml_n_pixels(file);
        }
    }
    if (n_pixels > N_LARGE_PIXELS || n_samples > N_LARGE_SAMPLES) {
        lock.lock();
    }
    for (const raw_buffer & file : files) {
        if (!pyggml_is_sound(file)) {
            pyggml_check_image(file);
        }
    }
    pyggml_widen_budget(n_samples * CPU_NS_PER_SAMPLE / 1000, n_samples * BYTES_PER_SAMPLE);
    return process_mtmd_prompt(server.media.get(), prompt, files, server.init_opt, is_count);
}

server_tokens pyggml_tokenize_prompt(const pyggml_server & server, const json & prompt) {
    const bool has_data = prompt.is_object() && prompt.contains(TEXT_KEY) && prompt.contains(DATA_KEY);
    if (!has_data || !server.media) {
        return tokenize_input_subprompt(server.vocab, nullptr, prompt, true, true, server.init_opt);
    }
    std::vector<raw_buffer> files;
    for (const auto & entry : prompt.at(DATA_KEY)) {
        const std::string data = base64::decode(entry.get<std::string>());
        files.emplace_back(data.begin(), data.end());
    }
    return tokenize_with_files(server, prompt.at(TEXT_KEY), files);
}

static bool is_text_part(const json & part) {
    return part.is_object() && json_value(part, "type", std::string()) == "text";
}

// The files of these parts, in their order, as llama.cpp reads them out of a chat.
static std::vector<raw_buffer> files_of(const pyggml_server & server, const json & parts) {
    json message = { { "role", "user" }, { "content", parts } };
    json chat    = { { "messages", json::array({ message }) } };
    pyggml_refuse_remote_media(chat);
    server_chat_params params = {};
    params.tmpls              = common_chat_templates_init(server.model, "chatml"); // the model's own may refuse
    params.allow_image        = server.chat_params.allow_image;
    params.allow_audio        = server.chat_params.allow_audio;
    params.media_path         = server.chat_params.media_path;
    std::vector<raw_buffer> files;
    oaicompat_chat_params_parse(chat, params, files);
    return files;
}

server_tokens pyggml_tokenize_content(const pyggml_server & server, const json & content) {
    json        media = json::array();
    std::string prompt;
    for (const auto & part : content.is_array() ? content : json::array()) {
        if (is_text_part(part)) {
            prompt += json_value(part, "text", std::string());
        } else {
            prompt += get_media_marker();
            media.push_back(part);
        }
    }
    if (!server.media || media.empty()) {
        return tokenize_oai_content_array(server.vocab, nullptr, server.chat_params, content, true, true, server.init_opt);
    }
    return tokenize_with_files(server, prompt, files_of(server, media));
}

std::vector<server_tokens> pyggml_tokenize_prompts(const pyggml_server & server, const json & prompt,
                                                   const std::vector<raw_buffer> & files, bool is_chat) {
    std::vector<server_tokens> all;
    if (is_chat && server.media) {
        all.push_back(tokenize_with_files(server, prompt.get<std::string>(), files));
    } else if (prompt.is_array() && !json_is_array_and_contains_numbers(prompt)) {
        for (const auto & one : prompt) {
            all.push_back(pyggml_tokenize_prompt(server, one));
        }
    } else {
        all.push_back(pyggml_tokenize_prompt(server, prompt));
    }
    return all;
}

size_t pyggml_count_prompt(const pyggml_server & server, const std::string & prompt,
                           const std::vector<raw_buffer> & files) {
    if (server.media) {
        return tokenize_with_files(server, prompt, files, true).size();
    }
    return tokenize_mixed(server.vocab, prompt, true, true).size();
}

llama_tokens pyggml_all_tokens(const server_tokens & tokens) {
    llama_tokens out(tokens.size());
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = tokens[i];
    }
    return out;
}

// -- media by address ------------------------------------------------------------------------------------------------

static bool is_address(const json & holder, const char * key) {
    return holder.is_object() && json_value(holder, key, std::string()).rfind("http", 0) == 0;
}

static bool is_remote(const json & part) {
    const std::string type = part.is_object() ? json_value(part, "type", std::string()) : std::string();
    if (type != "image_url" && type != "input_audio") {
        return false;
    }
    const json media    = json_value(part, type, json::object());
    const bool has_data = type == "input_audio" && media.is_object() && media.contains("data");
    return is_address(media, has_data ? "data" : "url");
}

void pyggml_refuse_remote_media(const json & chat) {
    for (const auto & message : json_value(chat, "messages", json::array())) {
        const json content = message.is_object() ? json_value(message, "content", json()) : json();
        for (const auto & part : content.is_array() ? content : json::array()) {
            if (is_remote(part)) {
                throw std::invalid_argument("Failed to download image: send it as a data URI");
            }
        }
    }
}
