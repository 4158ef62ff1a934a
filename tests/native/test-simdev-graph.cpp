// Graphs run late, from a deep copy: whatever happens to the original, what was issued is what is computed.
#include "ggml-impl.h"
#include "simulated.h"

// y = 2 * x[1:3] + b, written into the second half of `out` through views.
struct Work {
    explicit Work(const Simdev & sim) {
        context.reset(ggml_init({ 1 << 20, nullptr, true }));
        x = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 4);
        b = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 2);
        out = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 4);
        scaled = ggml_scale(context.get(), ggml_view_1d(context.get(), x, 2, sizeof(float)), 2);
        sum = ggml_add(context.get(), scaled, b);
        half = ggml_view_1d(context.get(), out, 2, 2 * sizeof(float));
        graph = ggml_new_graph(context.get());
        ggml_build_forward_expand(graph, ggml_cpy(context.get(), sum, half));
        buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_dev_buffer_type(sim.dev())));
        put(x, { 1, 2, 3, 4 });
        put(b, { 10, 20 });
        put(out, { 0, 0, 0, 0 });
    }

    void put(ggml_tensor * tensor, const Floats & values) const {
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }

    Context       context;
    Buffer        buffer;
    ggml_tensor * x, *b, *out, *scaled, *sum, *half;
    ggml_cgraph * graph;
};

static Floats read(const Backend & stream, ggml_tensor * tensor) {
    ggml_backend_synchronize(stream.get());
    Floats values(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
    return values;
}

static const Floats EXPECTED{ 0, 0, 14, 26 };

CASE(a_graph_runs_when_it_is_waited_for) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Work    work(sim);
    CHECK(ggml_backend_graph_compute_async(stream.get(), work.graph) == GGML_STATUS_SUCCESS);
    CHECK(sim.n_pending() == 1);
    CHECK(sim.trace(SIMDEV_KIND_GRAPH).at(0).n_nodes == static_cast<uint64_t>(work.graph->n_nodes));
    CHECK(read(stream, work.out) == EXPECTED);
}

CASE(a_graph_reads_data_as_late_as_copies_do) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Work    work(sim);
    ggml_backend_graph_compute_async(stream.get(), work.graph);
    work.put(work.b, { 0, 0 });
    CHECK((read(stream, work.out) == Floats{ 0, 0, 4, 6 }));
}

CASE(operations_parameters_shapes_and_links_are_those_at_issue) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Work    work(sim);
    ggml_backend_graph_compute_async(stream.get(), work.graph);
    const float factor = 100;
    memcpy(work.scaled->op_params, &factor, sizeof(factor));
    work.sum->op = GGML_OP_MUL;
    work.sum->src[1] = work.scaled;
    work.half->ne[0] = 1;
    work.half->data = work.out->data;
    work.scaled->src[0] = work.b;
    CHECK(read(stream, work.out) == EXPECTED);
}

CASE(the_graphs_own_context_may_be_freed_after_issue) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Work          work(sim);
    const Context reader(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    ggml_tensor * out = ggml_dup_tensor(reader.get(), work.out);
    out->data = work.out->data;
    out->buffer = work.out->buffer;
    ggml_backend_graph_compute_async(stream.get(), work.graph);
    work.context.reset();
    CHECK(read(stream, out) == EXPECTED);
}

CASE(a_graph_that_is_changed_and_issued_again_computes_both) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Work    work(sim);
    Floats        first(4);
    ggml_backend_graph_compute_async(stream.get(), work.graph);
    ggml_backend_tensor_get_async(stream.get(), work.out, first.data(), 0, ggml_nbytes(work.out));
    work.sum->op = GGML_OP_SUB;
    ggml_backend_graph_compute_async(stream.get(), work.graph);
    CHECK((read(stream, work.out) == Floats{ 0, 0, -6, -14 }));
    CHECK(first == EXPECTED);
}

CASE(memory_that_a_pending_graph_uses_is_freed_after_the_graph) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    {
        const Work work(sim);
        ggml_backend_graph_compute_async(stream.get(), work.graph);
    }
    CHECK(sim.n_pending() == 0 && sim.n_faults() == 0);
    CHECK(sim.trace(SIMDEV_KIND_GRAPH).at(0).done > 0);
}

CASE(an_empty_graph_is_no_operation) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    const Context context(ggml_init({ 1 << 20, nullptr, true }));
    CHECK(ggml_backend_graph_compute(stream.get(), ggml_new_graph(context.get())) == GGML_STATUS_SUCCESS);
    CHECK(sim.trace(SIMDEV_KIND_GRAPH).empty());
}

// rms_norm and mul, which the CPU backend may fuse. Fused or not, today's kernels give the same bits: this compares
// results and does not show whether the copy was fused.
static Floats normalized(const Backend & backend) {
    const Context context(ggml_init({ 1 << 20, nullptr, true }));
    ggml_tensor * x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 64, 3);
    ggml_tensor * weight = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 64);
    ggml_tensor * y = ggml_mul(context.get(), ggml_rms_norm(context.get(), x, 1e-5F), weight);
    ggml_cgraph * graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, y);
    const Buffer buffer(ggml_backend_alloc_ctx_tensors(context.get(), backend.get()));
    Floats       values(64 * 3);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i % 17) / 3 - 2;
    }
    ggml_backend_tensor_set(x, values.data(), 0, ggml_nbytes(x));
    ggml_backend_tensor_set(weight, values.data(), 0, ggml_nbytes(weight));
    ggml_backend_graph_compute_async(backend.get(), graph);
    return read(backend, y);
}

CASE(operations_that_the_cpu_fuses_give_the_same_bits) {
    const Simdev  sim;
    const Backend cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr));
    CHECK(normalized(sim.stream()) == normalized(cpu));
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
