// Prints a hash of every state of a model whose sequences lie interleaved: saved, restored, from a file, and the whole context.
//
// Built against the C API only, so that the same program runs on libraries before and after a patch: equal output means
// equal bytes. Usage: state-bytes [-fa] [-ctk TYPE] [-ngl N] MODEL... (ggml type numbers, for K and V).

#include <ggml-backend.h>
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int n_seq = 4;
constexpr int n_tokens = 400;

struct settings {
    bool flash_attention = false;
    ggml_type cache_type = GGML_TYPE_F16;
    int n_gpu_layers = 99;
};

uint64_t hash_of(const std::vector<uint8_t> & bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint8_t byte : bytes) {
        hash = (hash ^ byte) * 0x100000001b3u;
    }
    return hash;
}

std::vector<uint8_t> sequence_state(llama_context * context, llama_seq_id seq_id, uint32_t flags) {
    std::vector<uint8_t> bytes(llama_state_seq_get_size_ext(context, seq_id, flags));
    bytes.resize(llama_state_seq_get_data_ext(context, bytes.data(), bytes.size(), seq_id, flags));
    return bytes;
}

std::vector<uint8_t> file_bytes(const std::string & path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool decode_interleaved(llama_context * context, int n_vocab, std::mt19937 & random) {
    std::vector<llama_pos> position(n_seq, 0);
    for (int i = 0; i < n_tokens; i += 20) {
        llama_batch batch = llama_batch_init(20, 0, 1);
        for (int j = 0; j < 20; j++) {
            // Every sequence of a batch in one block: recurrent memories want it so; the blocks differ in length.
            const llama_seq_id seq_id = (i / 20 % 2 == 0) ? j / 5 : (j < 2 ? 0 : j < 3 ? 1 : j < 9 ? 2 : 3);
            batch.token[j] = static_cast<llama_token>(random() % n_vocab);
            batch.pos[j] = position[seq_id]++;
            batch.n_seq_id[j] = 1;
            batch.seq_id[j][0] = seq_id;
            batch.logits[j] = false;
        }
        batch.n_tokens = 20;
        batch.logits[19] = true;
        const bool decoded = llama_decode(context, batch) == 0;
        llama_batch_free(batch);
        if (!decoded) {
            return false;
        }
    }
    return true;
}

void print_states(llama_context * context, const char * name, const char * when) {
    for (llama_seq_id seq_id = 0; seq_id < n_seq; seq_id++) {
        const auto full = sequence_state(context, seq_id, 0);
        const auto partial = sequence_state(context, seq_id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
        std::printf("%s %s seq %d: %zu %016lx, partial %zu %016lx\n", name, when, seq_id, full.size(), hash_of(full),
                    partial.size(), hash_of(partial));
    }
}

void restore(llama_context * context, const char * name) {
    std::vector<std::vector<uint8_t>> states;
    for (llama_seq_id seq_id = 0; seq_id < n_seq; seq_id++) {
        states.push_back(sequence_state(context, seq_id, 0));
    }
    for (llama_seq_id seq_id : {1, 3}) {
        llama_memory_seq_rm(llama_get_memory(context), seq_id, -1, -1);
    }
    for (llama_seq_id seq_id : {3, 1}) {
        const size_t n_read =
            llama_state_seq_set_data_ext(context, states[seq_id].data(), states[seq_id].size(), seq_id, 0);
        std::printf("%s restored %d: %d\n", name, seq_id, n_read == states[seq_id].size());
    }
}

void through_a_file(llama_context * context, const char * name) {
    const std::string path = "state-bytes." + std::to_string(static_cast<long>(std::rand())) + ".bin";
    llama_state_seq_save_file(context, path.c_str(), 2, nullptr, 0);
    const auto bytes = file_bytes(path);
    std::printf("%s file: %zu %016lx\n", name, bytes.size(), hash_of(bytes));
    llama_memory_seq_rm(llama_get_memory(context), 2, -1, -1);
    size_t n_read_tokens = 0;
    llama_token token = 0;
    llama_state_seq_load_file(context, path.c_str(), 2, &token, 1, &n_read_tokens);
    std::remove(path.c_str());
}

void whole_context(llama_context * context, const char * name) {
    std::vector<uint8_t> bytes(llama_state_get_size(context));
    bytes.resize(llama_state_get_data(context, bytes.data(), bytes.size()));
    std::printf("%s context: %zu %016lx\n", name, bytes.size(), hash_of(bytes));
    std::printf("%s context restored: %d\n", name, llama_state_set_data(context, bytes.data(), bytes.size()) == bytes.size());
    print_states(context, name, "after the context");
}

void show(const char * path, const settings & wanted, bool unified) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = wanted.n_gpu_layers;
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
        llama_model_load_from_file(path, model_params), llama_model_free);
    if (!model) {
        std::printf("%s: not loaded\n", path);
        return;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024 * (unified ? 1 : n_seq);
    params.n_batch = params.n_ubatch = 64;
    params.n_seq_max = n_seq;
    params.kv_unified = unified;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = wanted.cache_type;
    params.flash_attn_type = wanted.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    std::unique_ptr<llama_context, decltype(&llama_free)> context(
        llama_init_from_model(model.get(), params), llama_free);
    const std::string name = std::string(path).substr(std::string(path).rfind('/') + 1) + (unified ? " unified" : " streams");
    std::mt19937 random(7);
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
    if (!context || llama_get_memory(context.get()) == nullptr || llama_model_has_encoder(model.get()) ||
        !decode_interleaved(context.get(), n_vocab, random)) {
        std::printf("%s: no context, or it does not decode\n", name.c_str());
        return;
    }
    print_states(context.get(), name.c_str(), "saved");
    restore(context.get(), name.c_str());
    print_states(context.get(), name.c_str(), "after restore");
    through_a_file(context.get(), name.c_str());
    print_states(context.get(), name.c_str(), "after the file");
    whole_context(context.get(), name.c_str());
}

}  // namespace

int main(int argc, char ** argv) {
    ggml_backend_load_all();
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    settings wanted;
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "-fa") == 0) {
            wanted.flash_attention = true;
        } else if (std::strcmp(argv[i], "-ctk") == 0) {
            wanted.cache_type = static_cast<ggml_type>(std::atoi(argv[++i]));
        } else if (std::strcmp(argv[i], "-ngl") == 0) {
            wanted.n_gpu_layers = std::atoi(argv[++i]);
        } else {
            show(argv[i], wanted, true);
            show(argv[i], wanted, false);
            std::fflush(stdout);
        }
    }
    return 0;
}
