const char * pyggml_shim_version(void);
