// The files of the models that a command line names, as llama.cpp's own code chooses, caches and downloads them.
//
// One thread at a time for one `args`, and before its models are loaded. What is asked of the hub goes to the address
// in the environment variable MODEL_ENDPOINT.
#pragma once

#include "server.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where the models are to come from: a JSON object.
PYGGML_API int pyggml_args_sources(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
// The model comes from `url` and, unless `path` is empty, is kept in the file `path`.
PYGGML_API int pyggml_args_set_model_url(pyggml_args * args, const char * url, const char * path, pyggml_error * err);
// The encoder of --mmproj comes from `url`.
PYGGML_API int pyggml_args_set_mmproj_url(pyggml_args * args, const char * url, pyggml_error * err);
// Chooses the files: of a repository of the hub by what it lists, or else by what the cache has of it. A JSON object.
PYGGML_API int pyggml_args_plan_files(pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
// Downloads those that are not there, after pyggml_args_plan_files; then loading needs no network any more.
PYGGML_API int pyggml_args_fetch_files(pyggml_args * args, pyggml_error * err);

#ifdef __cplusplus
}
#endif
