// ggml's scheduler over simdev and the CPU: it reuses tensors and graphs while earlier ones are still pending.
#include "simulated.h"

using Scheduler = std::unique_ptr<ggml_backend_sched, Freed<ggml_backend_sched_free>>;

// y = w[n-1] * ... * w[0] * x, with each square matrix in the memory of another device.
struct Chain {
    Chain(const Simdev & sim, size_t n_matrices) {
        for (size_t i = 0; i < n_matrices; ++i) {
            weights.emplace_back(std::make_unique<Row>(sim, N * N, "weights", i % ggml_backend_reg_dev_count(sim.reg)));
            Floats values(N * N);
            for (size_t j = 0; j < values.size(); ++j) {
                values[j] = static_cast<float>((j * 7 + i * 3) % 5) - 2;
            }
            weights.back()->put(values);
            numbers.push_back(values);
            ggml_backend_buffer_set_usage(weights.back()->buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        }
    }

    // The graph's input and output.
    std::pair<ggml_tensor *, ggml_tensor *> build(ggml_context * context, ggml_cgraph * graph) const {
        ggml_tensor * x = ggml_new_tensor_1d(context, GGML_TYPE_F32, N);
        ggml_set_input(x);
        ggml_tensor * y = x;
        for (const auto & row : weights) {
            y = ggml_mul_mat(context, ggml_reshape_2d(context, row->tensor, N, N), y);
        }
        ggml_set_output(y);
        ggml_build_forward_expand(graph, y);
        return { x, y };
    }

    // Small whole numbers: exact in floats, in any order of addition.
    Floats expected(Floats x) const {
        for (const Floats & matrix : numbers) {
            Floats y(N, 0);
            for (size_t row = 0; row < N; ++row) {
                for (size_t column = 0; column < N; ++column) {
                    y[row] += matrix[row * N + column] * x[column];
                }
            }
            x = y;
        }
        return x;
    }

    static constexpr int64_t          N = 8;
    std::vector<std::unique_ptr<Row>> weights;
    std::vector<Floats>               numbers;
};

struct Scheduled {
    Scheduled(const Simdev & sim, bool is_parallel) {
        for (size_t i = 0; i < ggml_backend_reg_dev_count(sim.reg); ++i) {
            backends.push_back(sim.stream(i));
        }
        backends.emplace_back(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
        std::vector<ggml_backend_t> raw;
        for (const Backend & backend : backends) {
            raw.push_back(backend.get());
        }
        const auto n_backends = static_cast<int>(raw.size());
        scheduler.reset(ggml_backend_sched_new(raw.data(), nullptr, n_backends, 256, is_parallel, true));
    }

    // Issues it; the result is in `y` after a synchronize.
    void issue(const Chain & chain, const Floats & x, Floats & y) {
        contexts.emplace_back(ggml_init({ 1 << 20, nullptr, true }));
        ggml_cgraph * graph = ggml_new_graph(contexts.back().get());
        const auto [in, out] = chain.build(contexts.back().get(), graph);
        ggml_backend_sched_reset(scheduler.get());
        CHECK(ggml_backend_sched_alloc_graph(scheduler.get(), graph));
        ggml_backend_tensor_set(in, x.data(), 0, ggml_nbytes(in));
        CHECK(ggml_backend_sched_graph_compute_async(scheduler.get(), graph) == GGML_STATUS_SUCCESS);
        ggml_backend_t last = ggml_backend_sched_get_tensor_backend(scheduler.get(), out);
        ggml_backend_tensor_get_async(last, out, y.data(), 0, ggml_nbytes(out));
    }

    std::vector<Backend> backends;
    std::vector<Context> contexts;
    Scheduler            scheduler;
};

static Floats input(size_t i) {
    Floats x(Chain::N);
    for (size_t j = 0; j < x.size(); ++j) {
        x[j] = static_cast<float>((i + j) % 3) - 1;
    }
    return x;
}

static void compute_six_graphs(const Simdev & sim, size_t n_matrices, bool is_parallel) {
    const Chain         chain(sim, n_matrices);
    Scheduled           scheduled(sim, is_parallel);
    std::vector<Floats> results(6, Floats(Chain::N));
    for (size_t i = 0; i < results.size(); ++i) {
        scheduled.issue(chain, input(i), results[i]);
    }
    CHECK(sim.n_pending() > 0);
    ggml_backend_sched_synchronize(scheduled.scheduler.get());
    for (size_t i = 0; i < results.size(); ++i) {
        CHECK(results[i] == chain.expected(input(i)));
    }
    CHECK(sim.n_faults() == 0);
}

CASE(graphs_issued_without_waiting_give_each_its_own_result) {
    compute_six_graphs(Simdev(), 3, false);
}

CASE(two_devices_hand_their_results_to_each_other) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    compute_six_graphs(sim, 4, false);
    CHECK(!sim.trace(SIMDEV_KIND_COPY).empty());
}

CASE(two_devices_work_in_a_pipeline) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    compute_six_graphs(sim, 4, true);
    CHECK(!sim.trace(SIMDEV_KIND_COPY).empty() && !sim.trace(SIMDEV_KIND_RECORD).empty());
}

CASE(four_eager_devices_work_in_a_pipeline) {
    const Simdev        sim({ { "SIMDEV_DEVICES", "4" }, { "SIMDEV_LATE", "0" } });
    const Chain         chain(sim, 8);
    Scheduled           scheduled(sim, true);
    std::vector<Floats> results(6, Floats(Chain::N));
    for (size_t i = 0; i < results.size(); ++i) {
        scheduled.issue(chain, input(i), results[i]);
    }
    ggml_backend_sched_synchronize(scheduled.scheduler.get());
    for (size_t i = 0; i < results.size(); ++i) {
        CHECK(results[i] == chain.expected(input(i)));
    }
}

CASE(two_devices_without_events_wait_instead) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" }, { "SIMDEV_EVENTS", "0" } });
    compute_six_graphs(sim, 4, false);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
