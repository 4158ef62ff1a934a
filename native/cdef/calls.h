// native/shim/log.h and native/shim/calls.h: what each does, and its errors, is said there.

struct pyggml_log_record {
    int32_t level;
    bool    is_llama;
    char *  text;
};

struct pyggml_abort_flag;

#define PYGGML_CALLS_VERSION ...

void pyggml_log_install(void);
void pyggml_log_stop(void);
bool pyggml_log_wait(int32_t timeout_ms);
size_t pyggml_log_n_records(void);
bool pyggml_log_next(struct pyggml_log_record * out);
void pyggml_log_record_free(struct pyggml_log_record * record);
void pyggml_log_test_emit(int32_t level, const char * text);

int32_t pyggml_calls_version(void);
size_t pyggml_sizeof_model_params(void);
size_t pyggml_sizeof_context_params(void);
int pyggml_backend_init(pyggml_error * err);
int pyggml_model_load(const char * path, const struct llama_model_params * params,
                      struct llama_model ** out, pyggml_error * err);
int pyggml_context_init(struct llama_model * model, const struct llama_context_params * params,
                        struct llama_context ** out, pyggml_error * err);
struct pyggml_abort_flag * pyggml_abort_flag_new(struct llama_context * ctx);
void pyggml_abort_flag_set(struct pyggml_abort_flag * flag, bool raised);
void pyggml_abort_flag_free(struct pyggml_abort_flag * flag);
int pyggml_decode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result,
                  pyggml_error * err);
int pyggml_encode(struct llama_context * ctx, const struct llama_batch * batch, int32_t * result,
                  pyggml_error * err);
int pyggml_synchronize(struct llama_context * ctx, pyggml_error * err);
int pyggml_logits(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err);
int pyggml_embeddings(struct llama_context * ctx, int32_t i, float ** out, pyggml_error * err);
int pyggml_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id, float ** out,
                          pyggml_error * err);
int pyggml_memory_clear(llama_memory_t mem, bool data, pyggml_error * err);
int pyggml_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                         bool * removed, pyggml_error * err);
int pyggml_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1,
                         pyggml_error * err);
int pyggml_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id, pyggml_error * err);
int pyggml_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                          llama_pos delta, pyggml_error * err);
int pyggml_memory_seq_div(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                          int32_t divisor, pyggml_error * err);
int pyggml_memory_seq_pos(llama_memory_t mem, llama_seq_id seq_id, llama_pos * pos_min, llama_pos * pos_max,
                          pyggml_error * err);
int pyggml_memory_n_cells_used(llama_memory_t mem, uint32_t * n_cells, pyggml_error * err);
int pyggml_memory_seq_n_cells(llama_memory_t mem, llama_seq_id seq_id, bool owned_only, uint32_t * n_cells,
                              pyggml_error * err);
int pyggml_state_size(struct llama_context * ctx, llama_seq_id seq_id, llama_state_seq_flags flags,
                      size_t * size, pyggml_error * err);
int pyggml_state_get(struct llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq_id,
                     llama_state_seq_flags flags, size_t * written, pyggml_error * err);
int pyggml_state_set(struct llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq_id,
                     llama_state_seq_flags flags, size_t * n_read, bool * no_room, pyggml_error * err);
int pyggml_state_save_file(struct llama_context * ctx, const char * path, llama_seq_id seq_id,
                           const llama_token * tokens, size_t n_tokens, size_t * written,
                           pyggml_error * err);
int pyggml_tokenize(const struct llama_vocab * vocab, const char * text, int32_t n_bytes,
                    llama_token * tokens, int32_t n_tokens_max, bool add_special, bool parse_special,
                    int32_t * n, pyggml_error * err);
int pyggml_detokenize(const struct llama_vocab * vocab, const llama_token * tokens, int32_t n_tokens,
                      char * text, int32_t n_bytes_max, bool remove_special, bool unparse_special,
                      int32_t * n, pyggml_error * err);
int pyggml_token_to_piece(const struct llama_vocab * vocab, llama_token token, char * text,
                          int32_t n_bytes_max, bool special, int32_t * n, pyggml_error * err);
int pyggml_chat_apply_template(const char * tmpl, const struct llama_chat_message * messages,
                               size_t n_messages, bool add_assistant, char * text, int32_t n_bytes_max,
                               int32_t * n, pyggml_error * err);
int pyggml_sampler_chain(struct llama_sampler ** out, pyggml_error * err);
int pyggml_sampler_add_greedy(struct llama_sampler * chain, pyggml_error * err);
int pyggml_sampler_add_dist(struct llama_sampler * chain, uint32_t seed, pyggml_error * err);
int pyggml_sampler_add_temp(struct llama_sampler * chain, float temperature, pyggml_error * err);
int pyggml_sampler_add_top_k(struct llama_sampler * chain, int32_t k, pyggml_error * err);
int pyggml_sampler_add_top_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err);
int pyggml_sampler_add_min_p(struct llama_sampler * chain, float p, size_t min_keep, pyggml_error * err);
int pyggml_sampler_add_penalties(struct llama_sampler * chain, int32_t n_vocab, int32_t last_n,
                                 float repeat, float frequency, float presence, pyggml_error * err);
int pyggml_sampler_add_grammar(struct llama_sampler * chain, const struct llama_vocab * vocab,
                               const char * grammar, const char * root, pyggml_error * err);
int pyggml_sampler_add_logit_bias(struct llama_sampler * chain, int32_t n_vocab, int32_t n,
                                  const llama_logit_bias * bias, pyggml_error * err);
int pyggml_sampler_clone(const struct llama_sampler * chain, struct llama_sampler ** out,
                         pyggml_error * err);
int pyggml_sampler_reset(struct llama_sampler * chain, pyggml_error * err);
int pyggml_sampler_accept(struct llama_sampler * chain, llama_token token, pyggml_error * err);
int pyggml_sampler_sample(struct llama_sampler * chain, struct llama_context * ctx, int32_t i,
                          llama_token * token, pyggml_error * err);
