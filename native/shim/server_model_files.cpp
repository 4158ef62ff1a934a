// Which files the models of a command line are, and their download: common_models_handler in steps, each of which tells
// what it found.
#include "server_types.hpp"

#include "server_model_files.h"

#include "download.h"

#include <filesystem>

using json   = common_json;
namespace fs = std::filesystem;

extern "C" int pyggml_args_sources(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const common_params &       params = args->params;
        const common_params_model & draft  = params.speculative.draft.mparams;
        const json                  j      = {
            { "is_offline", params.offline },
            { "hf_repo", params.model.hf_repo },
            { "hf_file", params.model.hf_file },
            { "draft_hf_repo", draft.hf_repo },
            { "draft_hf_file", draft.hf_file },
            { "docker_repo", params.model.docker_repo },
            { "model_url", params.model.url },
            { "model_path", params.model.path },
            { "mmproj_url", params.mmproj.url },
            { "cache_folder", fs_path_to_utf8(fs_get_cache_directory()) },
            { "hub_cache_folder", hf_cache::get_cache_path() },
        };
        pyggml_bytes_assign(out, safe_json_to_str(j));
    });
}

extern "C" int pyggml_args_set_model_url(pyggml_args * args, const char * url, const char * path, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        common_params_model & model = args->params.model;
        model.url                   = url;
        model.docker_repo.clear();
        if (*path != 0) {
            model.path = path;
        }
    });
}

extern "C" int pyggml_args_set_mmproj_url(pyggml_args * args, const char * url, pyggml_error * err) {
    return pyggml_guard(err, [&] { args->params.mmproj.url = url; });
}

// The files of --model-url or --mmproj-url, with the paths that common_models_handler_apply gives them.
static void add_url_files(json & files, const common_params_model & model) {
    if (model.url.empty()) {
        return;
    }
    const auto parts = common_download_get_all_parts(model.url);
    for (const std::string & part : parts) {
        const std::string plain = part.substr(0, part.find_first_of("?#"));
        const std::string name  = plain.substr(plain.rfind('/') + 1);
        fs::path          path  = fs_get_cache_file(name);
        if (!model.path.empty()) {
            const fs::path wanted = fs::u8path(model.path);
            path                  = parts.size() == 1 ? wanted : wanted.parent_path() / name;
        }
        files.push_back({ { "url", part }, { "path", fs_path_to_utf8(path) }, { "final_path", "" }, { "oid", "" } });
    }
}

static void add_file(json & files, const hf_cache::hf_file & file) {
    if (!file.local_path.empty()) {
        files.push_back({
            { "url", file.url },
            { "path", file.local_path },
            { "final_path", file.final_path },
            { "oid", file.oid },
        });
    }
}

// What a repository gave, and where that is nothing, which files it has instead.
static json repository(const char * flag, const std::string & repo, const common_download_hf_plan & plan,
                       const common_download_opts & opts, bool takes_sidecar) {
    json files = json::array();
    for (const auto & file : plan.model_files) {
        add_file(files, file);
    }
    json sidecars = json::array();
    for (const auto & file : { plan.mtp, plan.eagle3, plan.dflash, plan.dspark }) {
        add_file(sidecars, file);
    }
    json others = json::array();
    if (files.empty() && !(takes_sidecar && !sidecars.empty())) {
        const std::string  name = common_download_split_repo_tag(repo).first;
        hf_cache::hf_files all  = opts.offline ? hf_cache::hf_files{} : hf_cache::get_repo_files(name, opts.bearer_token);
        if (all.empty()) {
            all = hf_cache::get_cached_files(name);
        }
        for (const auto & file : all) {
            others.push_back(file.path);
        }
    }
    for (auto & sidecar : sidecars) {
        files.push_back(sidecar);
    }
    if (!files.empty() && !takes_sidecar) {
        add_file(files, plan.mmproj);
    }
    return {
        { "flag", flag },
        { "name", repo },
        { "is_preset", !plan.preset.path.empty() },
        { "cached_preset", plan.preset.url.empty() ? plan.preset.local_path : "" },
        { "files", files },
        { "others", others },
    };
}

extern "C" int pyggml_args_plan_files(pyggml_args * args, pyggml_bytes * out, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        const common_params & params       = args->params;
        const std::string &   draft_repo   = params.speculative.draft.mparams.hf_repo;
        json                  repositories = json::array();

        args->files                        = common_models_handler_init(params, LLAMA_EXAMPLE_SERVER);
        const common_models_handler & plan = *args->files;
        if (!params.model.hf_repo.empty()) {
            repositories.push_back(repository("-hf", params.model.hf_repo, plan.plan, plan.opts, false));
        }
        if (!draft_repo.empty()) {
            repositories.push_back(repository("-hfd", draft_repo, plan.plan_spec, plan.opts, true));
        }
        json by_url = json::array();
        add_url_files(by_url, params.model);
        add_url_files(by_url, params.mmproj);
        pyggml_bytes_assign(out, safe_json_to_str({ { "repositories", repositories }, { "url_files", by_url } }));
    });
}

extern "C" int pyggml_args_fetch_files(pyggml_args * args, pyggml_error * err) {
    return pyggml_guard(err, [&] {
        common_models_handler_apply(args->files.value(), args->params);
        args->are_files_here = true;
    });
}
