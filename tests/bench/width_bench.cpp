// Times decode steps while the number of sequences in a batch changes, and prints one JSON object.
//
// Built against the C API only: run the same program with libllama before and after a patch (LD_LIBRARY_PATH), on one
// machine, one after the other. Usage: width_bench LABEL MODEL [N_STEPS]. Four sequences of 1000 tokens; then steps with
// four rows, and steps with four and three in turn, sixteen of each. The logits of each step are read back.

#include "filled_pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using filled_pool::n_sequences;

constexpr int n_cells = 2048;
constexpr int n_prompt = 1000;
constexpr int n_between_changes = 16;

class Sequences {
  public:
    explicit Sequences(llama_context * context) : context(context), batch(llama_batch_init(n_prompt, 0, 1)) {}
    ~Sequences() { llama_batch_free(batch); }

    void prompt(llama_seq_id seq_id) {
        batch.n_tokens = 0;
        for (int i = 0; i < n_prompt; i++) {
            append(seq_id, i == n_prompt - 1);
        }
        decode();
    }

    double step_ms(int n_rows) {
        const auto begin = std::chrono::steady_clock::now();
        batch.n_tokens = 0;
        for (llama_seq_id seq_id = 0; seq_id < n_rows; seq_id++) {
            append(seq_id, true);
        }
        decode();
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    }

  private:
    void append(llama_seq_id seq_id, bool has_logits) {
        const int i = batch.n_tokens++;
        batch.token[i] = 100 + position[seq_id] * 11 % 5000;
        batch.pos[i] = position[seq_id]++;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = seq_id;
        batch.logits[i] = has_logits;
    }

    void decode() const {
        if (llama_decode(context, batch) != 0 || llama_get_logits_ith(context, -1) == nullptr) {
            throw std::runtime_error("a batch did not decode");
        }
    }

    llama_context * context;
    llama_batch batch;
    llama_pos position[n_sequences] = {};
};

void print_times(const char * name, std::vector<double> times, const char * end) {
    std::sort(times.begin(), times.end());
    const auto at = [&](double quantile) { return times[static_cast<size_t>(quantile * (times.size() - 1))]; };
    std::printf("\"%s\": {\"n\": %zu, \"p50_ms\": %.3f, \"p90_ms\": %.3f, \"p99_ms\": %.3f, \"worst_ms\": %.3f}%s\n", name,
                times.size(), at(0.5), at(0.9), at(0.99), times.back(), end);
}

void measure(llama_context * context, int n_steps) {
    Sequences sequences(context);
    for (llama_seq_id seq_id = 0; seq_id < n_sequences; seq_id++) {
        sequences.prompt(seq_id);
    }
    std::vector<double> constant, changing, by_distance[4];
    for (int round = 0; round < 2; round++) {
        constant.clear();
        for (int i = 0; i < n_steps; i++) {
            constant.push_back(sequences.step_ms(n_sequences));
        }
        changing.clear();
        for (auto & times : by_distance) {
            times.clear();
        }
        for (int i = 0; i < n_steps; i++) {
            changing.push_back(sequences.step_ms(n_sequences - (i / n_between_changes) % 2));
            if (i % n_between_changes < 3) {
                by_distance[i % n_between_changes].push_back(changing.back());
            }
        }
    }
    print_times("constant", constant, ",");
    print_times("changing", changing, ",");
    print_times("first_after_a_change", by_distance[0], ",");
    print_times("second_after_a_change", by_distance[1], ",");
    print_times("third_after_a_change", by_distance[2], "}");
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: width_bench LABEL MODEL [N_STEPS]\n");
        return 2;
    }
    const auto model = filled_pool::load_model(argv[2]);
    auto params = filled_pool::pool_params(n_cells);
    params.n_batch = n_prompt;
    const auto context = filled_pool::make_context(model, params);
    if (!context) {
        std::fprintf(stderr, "%s: no context with this model\n", argv[2]);
        return 1;
    }
    std::printf("{\"label\": \"%s\",\n", argv[1]);
    try {
        measure(context.get(), argc > 3 ? std::atoi(argv[3]) : 256);
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
