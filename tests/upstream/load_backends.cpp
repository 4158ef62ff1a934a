// Linked to upstream's test programs: loads the backends before main, GGML_BACKEND_PATH's among them. llama_backend_init
// does that only when no backend is built in, and a CPU backend is. Weak, for programs that are linked without ggml.
extern "C" __attribute__((weak)) void ggml_backend_load_all(void);

static const bool loaded = ggml_backend_load_all != nullptr && (ggml_backend_load_all(), true);
