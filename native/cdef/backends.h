int pyggml_backends_load(pyggml_error * err);
int pyggml_backend_load_file(const char * path, pyggml_error * err);
