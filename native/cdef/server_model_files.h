// Declarations of native/shim/server_model_files.h for cffi.

int pyggml_args_sources(const pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
int pyggml_args_set_model_url(pyggml_args * args, const char * url, const char * path, pyggml_error * err);
int pyggml_args_set_mmproj_url(pyggml_args * args, const char * url, pyggml_error * err);
int pyggml_args_plan_files(pyggml_args * args, pyggml_bytes * out, pyggml_error * err);
int pyggml_args_fetch_files(pyggml_args * args, pyggml_error * err);
