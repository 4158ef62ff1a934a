// Images and sounds of prompts: loading their encoder, encoding them, decoding what that gave. Loading and decoding on the engine
// thread; encoding on one other thread.
#include "server_media.hpp"

#include "server_adapters.hpp"

#include <algorithm>

struct pyggml_media {
    std::shared_ptr<pyggml_media_prompt> prompt;
};

// -- loading ---------------------------------------------------------------------------------------------------------

static mtmd_context_params encoder_params(const common_params & params) {
    mtmd_context_params out = mtmd_context_params_default();
    out.use_gpu             = params.mmproj_use_gpu;
    out.device              = params.mmproj_device;
    out.print_timings       = false;
    out.n_threads           = params.cpuparams.n_threads;
    out.flash_attn_type     = params.flash_attn_type;
    out.warmup              = params.warmup;
    out.image_min_tokens    = params.image_min_tokens;
    out.image_max_tokens    = params.image_max_tokens;
    out.batch_max_tokens    = params.mtmd_batch_max_tokens;
    out.media_marker        = get_media_marker();
    return out;
}

void pyggml_media_reserve(common_params & params) {
    if (params.mmproj.path.empty() || !params.fit_params) {
        return;
    }
    const auto by_device = mtmd_get_memory_usage(params.mmproj.path.c_str(), encoder_params(params));
    if (by_device.empty()) {
        SRV_ERR("the memory that '%s' takes is not known: it is left out of --fit\n", params.mmproj.path.c_str());
    }
    for (const auto & [device, n_bytes] : by_device) {
        for (size_t i = 0; i < std::min(ggml_backend_dev_count(), params.fit_params_target.size()); ++i) {
            if (ggml_backend_dev_get(i) == device) {
                params.fit_params_target[i] += n_bytes;
                break;
            }
        }
    }
}

// As in llama-server.
static void settle_for_images(common_params & params) {
    const auto warn = [](const char * what) { SRV_WRN("%s is not supported with --mmproj, it is off\n", what); };
    if (params.ctx_shift) {
        params.ctx_shift = false;
        warn("--context-shift");
    }
    if (params.n_cache_reuse > 0) {
        params.n_cache_reuse = 0;
        warn("--cache-reuse");
    }
}

void pyggml_media_load(pyggml_server & server) {
    const std::string & path = server.params.mmproj.path;
    if (path.empty()) {
        return;
    }
    mtmd_helper_log_set(common_log_default_callback, nullptr);
    server.media.reset(mtmd_init_from_file(path.c_str(), server.model, encoder_params(server.params)));
    if (!server.media) {
        throw std::runtime_error("failed to load multimodal model, '" + path +
                                 "': see the log; it must be the --mmproj file of this very model");
    }
    SRV_INF("loaded multimodal model, '%s'\n", path.c_str());
    // without video ffmpeg is never asked what a file may be
    server.init_opt.video_params.ffmpeg_bin_dir = "/nonexistent";
    settle_for_images(server.params);
}

bool pyggml_sees(const pyggml_server & server) {
    return server.media && mtmd_support_vision(server.media.get());
}

bool pyggml_hears(const pyggml_server & server) {
    return server.media && mtmd_support_audio(server.media.get());
}

// -- one prompt ------------------------------------------------------------------------------------------------------

static std::vector<pyggml_media_prompt::run> runs_of(const server_tokens & tokens) {
    std::vector<pyggml_media_prompt::run> runs;
    size_t                                at = 0;
    while (at < tokens.size()) {
        if (tokens[at] != LLAMA_TOKEN_NULL) {
            ++at;
            continue;
        }
        const mtmd_input_chunk * chunk    = tokens.find_chunk(at).get();
        const size_t             n_tokens = mtmd_input_chunk_get_n_tokens(chunk);
        runs.push_back({ int32_t(at), int32_t(n_tokens), mtmd_input_chunk_get_n_pos(chunk), mtmd_input_chunk_get_id(chunk) });
        at += n_tokens;
    }
    return runs;
}

pyggml_media_prompt::pyggml_media_prompt(const pyggml_server & server, server_tokens && all) :
    server(&server), tokens(std::move(all)), runs(runs_of(tokens)), encoded(runs.size()) {
    const int32_t n_batch = int32_t(llama_n_batch(server.ctx)), n_ubatch = int32_t(llama_n_ubatch(server.ctx));
    for (size_t i = 0; i < runs.size(); ++i) {
        // llama.cpp ends the process for this one
        const int32_t n_together = std::min(runs[i].n_tokens, n_batch);
        if (n_together > n_ubatch && mtmd_decode_use_non_causal(server.media.get(), chunk(i))) {
            throw std::invalid_argument(string_format("the image or sound takes %d tokens, which this model decodes together: "
                                                      "raise --ubatch-size, which is %d", n_together, n_ubatch));
        }
    }
    if (!runs.empty() && size_t(runs.back().start + runs.back().n_tokens) == tokens.size()) {
        throw std::invalid_argument("the prompt ends with an image or a sound: put some text behind it");
    }
}

llama_pos pyggml_media_prompt::n_pos() const {
    llama_pos n = 0;
    for (const run & one : runs) {
        n += one.n_pos;
    }
    return n;
}

std::shared_ptr<mtmd_batch> pyggml_media_prompt::take(size_t i) {
    const std::lock_guard<std::mutex> lock(mutex);
    return std::move(encoded.at(i));
}

extern "C" int pyggml_task_media(const pyggml_task * task, pyggml_media ** out, pyggml_error * err) {
    *out = nullptr;
    return pyggml_guard(err, [&] {
        if (task->media) {
            *out = new pyggml_media{ task->media };
        }
    });
}

extern "C" void pyggml_media_free(pyggml_media * media) {
    delete media;
}

extern "C" int32_t pyggml_media_n_runs(const pyggml_media * media) {
    return int32_t(media->prompt->runs.size());
}

extern "C" void pyggml_media_get_run(const pyggml_media * media, int32_t i, pyggml_media_run * out) {
    const auto & run = media->prompt->runs[size_t(i)];
    *out             = { run.start, run.n_tokens, run.n_pos, run.id.c_str() };
}

extern "C" int pyggml_media_save_run(const pyggml_media * media, int32_t i, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const mtmd_input_chunk * chunk = media->prompt->chunk(size_t(i));
        size_t                   size  = 0;
        mtmd_input_chunk_save(chunk, nullptr, 0, &size);
        std::string saved(size, '\0');
        if (size == 0 || mtmd_input_chunk_save(chunk, &saved[0], size, nullptr) != 0) {
            throw std::runtime_error("Cannot serialize media chunk in server tokens");
        }
        pyggml_bytes_assign(out, saved);
    });
}

extern "C" int pyggml_saved_run_read(const char * data, size_t size, int32_t * n_tokens, int32_t * n_pos,
                                     pyggml_bytes * id, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const mtmd::input_chunk_ptr chunk(mtmd_input_chunk_load(data, size));
        if (!chunk || mtmd_input_chunk_get_type(chunk.get()) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            throw std::runtime_error("Cannot load media chunk from server tokens state");
        }
        const size_t n      = mtmd_input_chunk_get_n_tokens(chunk.get());
        const char * id_str = mtmd_input_chunk_get_id(chunk.get());
        *n_tokens           = int32_t(std::min(n, size_t(INT32_MAX)));
        *n_pos              = mtmd_input_chunk_get_n_pos(chunk.get());
        pyggml_bytes_assign(id, id_str == nullptr ? "" : id_str);
    });
}

extern "C" int32_t pyggml_media_is_encoded(const pyggml_media * media, int32_t i) {
    const std::lock_guard<std::mutex> lock(media->prompt->mutex);
    return media->prompt->encoded[size_t(i)] != nullptr;
}

// -- encoding and decoding -------------------------------------------------------------------------------------------

extern "C" int pyggml_media_encode(pyggml_media * media, int32_t i, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        pyggml_media_prompt &       prompt = *media->prompt;
        std::shared_ptr<mtmd_batch> batch(mtmd_batch_init(prompt.server->media.get()), mtmd_batch_free);
        size_t                      end = size_t(i);
        while (end < prompt.runs.size() && mtmd_batch_add_chunk(batch.get(), prompt.chunk(end)) == 0) {
            ++end;
        }
        if (end == size_t(i) || mtmd_batch_encode(batch.get()) != 0) {
            throw std::runtime_error("failed to encode an image or a sound: see the log");
        }
        const std::lock_guard<std::mutex> lock(prompt.mutex);
        std::fill(prompt.encoded.begin() + i, prompt.encoded.begin() + long(end), batch);
    });
}

// The draft model, and whether it could take what the target took.
struct follower {
    pyggml_drafter * drafter;
    bool             has_failed;
};

static int32_t let_draft_follow(const mtmd_helper_embd_batch * batch, void * user_data) {
    follower & f = *static_cast<follower *>(user_data);
    f.has_failed = !f.drafter->follow_media(*batch);
    return f.has_failed;
}

extern "C" int pyggml_media_decode(pyggml_server * server, const pyggml_row * row, int32_t i, int32_t pos,
                                   int32_t * decode_status, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        pyggml_task &          task   = *row->task;
        pyggml_media_prompt &  prompt = *task.media;
        const auto             batch  = prompt.take(size_t(i));
        float *                embd   = batch ? mtmd_batch_get_output_embd(batch.get(), prompt.chunk(size_t(i))) : nullptr;
        if (embd == nullptr) {
            throw std::logic_error("this run is not encoded");
        }
        llama_set_embeddings(server->ctx, false);
        pyggml_use_adapters(server->ctx, *row);
        llama_pos end  = 0;
        follower  f    = { server->drafter.get(), false };
        *decode_status = mtmd_helper_decode_image_chunk(server->media.get(), server->ctx, prompt.chunk(size_t(i)), embd, pos,
                                                        task.id_slot, int32_t(llama_n_batch(server->ctx)), &end,
                                                        f.drafter ? let_draft_follow : nullptr, &f);
        if (f.has_failed) {
            throw std::runtime_error("failed to process speculative batch");
        }
        if (*decode_status != 0) { // some batches of it may have found room
            llama_memory_seq_rm(llama_get_memory(server->ctx), task.id_slot, pos, -1);
            if (f.drafter) {
                f.drafter->cut(task.id_slot, pos);
            }
            const std::lock_guard<std::mutex> lock(prompt.mutex);
            prompt.encoded[size_t(i)] = batch;
        } else if (row->n_prompt_tokens > 0) {
            task.stats.n_prompt_processed += uint64_t(row->n_prompt_tokens);
            task.stats.update_prompt_last();
        }
    });
}
