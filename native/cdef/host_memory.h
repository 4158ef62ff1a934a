void * pyggml_host_reserve(size_t size, size_t alignment);
void   pyggml_host_release(void * base, size_t size);
bool   pyggml_host_populate(void * base, size_t size);
void   pyggml_host_discard(void * base, size_t size);
