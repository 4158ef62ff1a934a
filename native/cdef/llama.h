// The part of llama.h that pyggml and the server use. Compiled as C++ against the real header, so that a declaration
// that does not match it fails the build. Only functions that cannot throw are called directly; the others go through
// native/shim/calls.h.

typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;
typedef uint32_t llama_state_seq_flags;
typedef struct llama_memory_i * llama_memory_t;

struct llama_vocab;
struct llama_model;
struct llama_context;
struct llama_sampler;

#define LLAMA_TOKEN_NULL ...
#define LLAMA_DEFAULT_SEED ...
#define LLAMA_STATE_SEQ_MAGIC ...
#define LLAMA_STATE_SEQ_VERSION ...
#define LLAMA_STATE_SEQ_FLAGS_NONE ...
#define LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY ...
#define LLAMA_STATE_SEQ_FLAGS_ON_DEVICE ...

enum llama_vocab_type { LLAMA_VOCAB_TYPE_NONE, ... };
enum llama_pooling_type {
    LLAMA_POOLING_TYPE_UNSPECIFIED, LLAMA_POOLING_TYPE_NONE, LLAMA_POOLING_TYPE_MEAN, LLAMA_POOLING_TYPE_CLS,
    LLAMA_POOLING_TYPE_LAST, LLAMA_POOLING_TYPE_RANK, ...
};
enum llama_attention_type { LLAMA_ATTENTION_TYPE_UNSPECIFIED, ... };
enum llama_flash_attn_type {
    LLAMA_FLASH_ATTN_TYPE_AUTO, LLAMA_FLASH_ATTN_TYPE_DISABLED, LLAMA_FLASH_ATTN_TYPE_ENABLED, ...
};
enum ggml_type {
    GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL,
    GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, ...
};
enum ggml_log_level {
    GGML_LOG_LEVEL_NONE, GGML_LOG_LEVEL_DEBUG, GGML_LOG_LEVEL_INFO, GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR, ...
};

struct llama_model_params {
    int32_t n_gpu_layers;
    int32_t main_gpu;
    bool    vocab_only;
    bool    check_tensors;
    ...;
};

struct llama_context_params {
    uint32_t n_ctx;
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t n_outputs_max;
    int32_t  n_threads;
    int32_t  n_threads_batch;
    enum llama_pooling_type    pooling_type;
    enum llama_flash_attn_type flash_attn_type;
    float    rope_freq_base;
    float    rope_freq_scale;
    enum ggml_type type_k;
    enum ggml_type type_v;
    bool     embeddings;
    bool     offload_kqv;
    bool     no_perf;
    bool     op_offload;
    bool     swa_full;
    bool     kv_unified;
    size_t   n_bytes_staging;
    ...;
};

typedef struct llama_batch {
    int32_t         n_tokens;
    llama_token  *  token;
    float        *  embd;
    llama_pos    *  pos;
    int32_t      *  n_seq_id;
    llama_seq_id ** seq_id;
    int8_t       *  logits;
} llama_batch;

typedef struct llama_logit_bias {
    llama_token token;
    float       bias;
} llama_logit_bias;

typedef struct llama_chat_message {
    const char * role;
    const char * content;
} llama_chat_message;

const char * llama_version(void);
const char * llama_print_system_info(void);
void         llama_backend_init(void);
size_t       llama_max_parallel_sequences(void);
bool         llama_supports_gpu_offload(void);

struct llama_model_params   llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);

void     llama_model_free(struct llama_model * model);
void     llama_free(struct llama_context * ctx);

const struct llama_vocab * llama_model_get_vocab(const struct llama_model * model);
int32_t  llama_model_n_ctx_train(const struct llama_model * model);
int32_t  llama_model_n_embd(const struct llama_model * model);
int32_t  llama_model_n_embd_out(const struct llama_model * model);
int32_t  llama_model_n_layer(const struct llama_model * model);
int32_t  llama_model_n_head_kv(const struct llama_model * model);
int32_t  llama_model_n_swa(const struct llama_model * model);
uint32_t llama_model_n_cls_out(const struct llama_model * model);
uint64_t llama_model_size(const struct llama_model * model);
uint64_t llama_model_n_params(const struct llama_model * model);
bool     llama_model_has_encoder(const struct llama_model * model);
bool     llama_model_has_decoder(const struct llama_model * model);
bool     llama_model_is_recurrent(const struct llama_model * model);
bool     llama_model_is_hybrid(const struct llama_model * model);
int32_t  llama_model_desc(const struct llama_model * model, char * buf, size_t buf_size);
int32_t  llama_model_meta_count(const struct llama_model * model);
int32_t  llama_model_meta_val_str(const struct llama_model * model, const char * key, char * buf, size_t buf_size);
int32_t  llama_model_meta_key_by_index(const struct llama_model * model, int32_t i, char * buf, size_t buf_size);
int32_t  llama_model_meta_val_str_by_index(const struct llama_model * model, int32_t i, char * buf, size_t buf_size);
const char * llama_model_chat_template(const struct llama_model * model, const char * name);

enum llama_vocab_type llama_vocab_type(const struct llama_vocab * vocab);
int32_t     llama_vocab_n_tokens(const struct llama_vocab * vocab);
bool        llama_vocab_is_eog(const struct llama_vocab * vocab, llama_token token);
llama_token llama_vocab_bos(const struct llama_vocab * vocab);
llama_token llama_vocab_eos(const struct llama_vocab * vocab);
llama_token llama_vocab_eot(const struct llama_vocab * vocab);
llama_token llama_vocab_nl(const struct llama_vocab * vocab);
llama_token llama_vocab_pad(const struct llama_vocab * vocab);
bool        llama_vocab_get_add_bos(const struct llama_vocab * vocab);
bool        llama_vocab_get_add_eos(const struct llama_vocab * vocab);

uint32_t llama_n_ctx(const struct llama_context * ctx);
uint32_t llama_n_ctx_seq(const struct llama_context * ctx);
uint32_t llama_n_batch(const struct llama_context * ctx);
uint32_t llama_n_ubatch(const struct llama_context * ctx);
uint32_t llama_n_seq_max(const struct llama_context * ctx);
int32_t  llama_n_threads(struct llama_context * ctx);
int32_t  llama_n_threads_batch(struct llama_context * ctx);
void     llama_set_n_threads(struct llama_context * ctx, int32_t n_threads, int32_t n_threads_batch);
bool     llama_get_causal_attn(const struct llama_context * ctx);
enum llama_pooling_type llama_pooling_type(const struct llama_context * ctx);
const struct llama_model * llama_get_model(const struct llama_context * ctx);
llama_memory_t llama_get_memory(const struct llama_context * ctx);
bool     llama_memory_can_shift(llama_memory_t mem);

bool llama_host_memory_pin(struct llama_context * ctx, void * ptr, size_t size);
void llama_host_memory_unpin(struct llama_context * ctx, void * ptr, size_t size);

void llama_sampler_free(struct llama_sampler * smpl);
