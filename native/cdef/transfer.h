// native/shim/transfer.h, and what of llama_state_seq_copy_* cannot fail or throw.

struct llama_state_seq_copy;

int pyggml_transfer_init(struct llama_context * ctx, struct llama_state_seq_copy ** out, pyggml_error * err);
void pyggml_transfer_free(struct llama_state_seq_copy * copy);
int pyggml_transfer_reserve(struct llama_state_seq_copy * copy, size_t size, pyggml_error * err);
int pyggml_transfer_release(struct llama_state_seq_copy * copy, pyggml_error * err);
int pyggml_transfer_save(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                         llama_state_seq_flags flags, size_t * n, bool * frees, pyggml_error * err);
int pyggml_transfer_restore(struct llama_state_seq_copy * copy, llama_seq_id seq_id, size_t size,
                            llama_state_seq_flags flags, size_t * n, bool * no_room, pyggml_error * err);
int pyggml_transfer_frees_on_issue(struct llama_state_seq_copy * copy, llama_seq_id seq_id, bool * frees,
                                   pyggml_error * err);
int pyggml_transfer_prefetch(struct llama_state_seq_copy * copy, size_t n_loaded, size_t n_bytes, bool * issued,
                             size_t * n_left, pyggml_error * err);
int pyggml_transfer_prefetch_drop(struct llama_state_seq_copy * copy, pyggml_error * err);
int pyggml_transfer_done(struct llama_state_seq_copy * copy, bool * done, pyggml_error * err);
int pyggml_transfer_wait(struct llama_state_seq_copy * copy, pyggml_error * err);

size_t    llama_state_seq_copy_buf_size(const struct llama_state_seq_copy * copy);
uint8_t * llama_state_seq_copy_buf(struct llama_state_seq_copy * copy);
bool      llama_state_seq_copy_buf_use(struct llama_state_seq_copy * copy, void * ptr, size_t size, size_t piece,
                                       bool pinned);
bool      llama_state_seq_copy_buf_can_pin(const struct llama_state_seq_copy * copy);
bool      llama_state_seq_copy_buf_is_pinned(const struct llama_state_seq_copy * copy);
