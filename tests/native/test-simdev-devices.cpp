// What a device says of itself, what it offers, and how two of them copy to each other.
#include <set>

#include "simulated.h"

static ggml_backend_dev_props props_of(ggml_backend_dev_t dev) {
    ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    return props;
}

CASE(one_device_is_a_gpu_without_an_id) {
    const Simdev                 sim;
    const ggml_backend_dev_props props = props_of(sim.dev());
    CHECK(ggml_backend_reg_dev_count(sim.reg) == 1);
    CHECK(props.type == GGML_BACKEND_DEVICE_TYPE_GPU && props.device_id == nullptr);
    CHECK(props.caps.async && props.caps.events && props.caps.host_buffer);
    CHECK(!props.caps.buffer_from_host_ptr && !props.caps.mmap_support);
    CHECK(props.memory_total == 8ULL << 30 && props.memory_free == props.memory_total);
}

CASE(four_devices_have_names_and_ids_of_their_own) {
    const Simdev          sim({ { "SIMDEV_DEVICES", "4" }, { "SIMDEV_DEVICE_IDS", "1" } });
    std::set<std::string> names, ids;
    for (size_t i = 0; i < ggml_backend_reg_dev_count(sim.reg); ++i) {
        names.insert(props_of(sim.dev(i)).name);
        ids.insert(props_of(sim.dev(i)).device_id);
    }
    CHECK(names.size() == 4 && ids.size() == 4);
}

CASE(device_memory_is_not_host_memory_to_ggml) {
    const Simdev sim;
    const Row    row(sim, 1);
    CHECK(!ggml_backend_buffer_is_host(row.buffer.get()));
    CHECK(ggml_backend_dev_supports_buft(sim.dev(), ggml_backend_dev_buffer_type(sim.dev())));
    CHECK(!ggml_backend_dev_supports_buft(sim.dev(), ggml_backend_cpu_buffer_type()));
    CHECK(ggml_backend_buffer_get_alignment(row.buffer.get()) == 64);
}

CASE(memory_runs_out_and_comes_back) {
    const Simdev sim({ { "SIMDEV_MEMORY_BYTES", "1000" } });
    const auto   type = ggml_backend_dev_buffer_type(sim.dev());
    {
        const Buffer most(ggml_backend_buft_alloc_buffer(type, 900));
        CHECK(most != nullptr && props_of(sim.dev()).memory_free == 100);
        CHECK(ggml_backend_buft_alloc_buffer(type, 101) == nullptr);
    }
    CHECK(props_of(sim.dev()).memory_free == 1000);
}

CASE(a_buffer_has_a_largest_size_where_one_is_set) {
    const Simdev sim({ { "SIMDEV_MAX_BUFFER_BYTES", "256" } });
    const auto   type = ggml_backend_dev_buffer_type(sim.dev());
    CHECK(ggml_backend_buft_get_max_size(type) == 256);
    CHECK(ggml_backend_buft_alloc_buffer(type, 257) == nullptr);
}

CASE(a_device_without_async_does_everything_at_once) {
    const Simdev  sim({ { "SIMDEV_ASYNC", "0" } });
    const Backend stream = sim.stream();
    Row           row(sim, 1);
    const Floats  written{ 4 };
    Floats        read{ 0 };
    set_async(stream, row, written);
    get_async(stream, row, read);
    CHECK(read == written && sim.n_pending() == 0);
    CHECK(!props_of(sim.dev()).caps.async && sim.event() == nullptr);
}

CASE(a_device_without_events_makes_none) {
    const Simdev sim({ { "SIMDEV_EVENTS", "0" } });
    CHECK(sim.event() == nullptr && !props_of(sim.dev()).caps.events);
}

CASE(the_device_wants_large_products_with_host_weights_and_no_small_ones) {
    const Simdev  sim;
    const Context context(ggml_init({ 1 << 16, nullptr, true }));
    ggml_tensor * weights = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 4, 4);
    ggml_tensor * wide = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 4, 32);
    ggml_tensor * narrow = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, 4, 31);
    CHECK(ggml_backend_dev_offload_op(sim.dev(), ggml_mul_mat(context.get(), weights, wide)));
    CHECK(!ggml_backend_dev_offload_op(sim.dev(), ggml_mul_mat(context.get(), weights, narrow)));
    CHECK(!ggml_backend_dev_offload_op(sim.dev(), ggml_add(context.get(), wide, wide)));
    CHECK(ggml_backend_dev_supports_op(sim.dev(), ggml_add(context.get(), wide, wide)));
}

CASE(a_copy_between_devices_comes_between_what_both_streams_do_before_and_after) {
    const Simdev  sim({ { "SIMDEV_DEVICES", "2" } });
    const Backend from = sim.stream(0), to = sim.stream(1);
    Row           source(sim, 1, "source", 0), target(sim, 1, "target", 1);
    const Floats  old{ 1 }, copied{ 4 }, newer{ 9 };
    Floats        before{ 0 }, after{ 0 };
    target.put(old);
    set_async(from, source, copied);
    get_async(to, target, before);
    ggml_backend_tensor_copy_async(from.get(), to.get(), source.tensor, target.tensor);
    set_async(from, source, newer);
    get_async(to, target, after);
    CHECK(sim.trace(SIMDEV_KIND_COPY).at(0).done == 0);
    ggml_backend_synchronize(from.get());
    ggml_backend_synchronize(to.get());
    CHECK(before == old && after == copied && source.now() == newer);
}

CASE(a_copy_within_one_stream_keeps_its_order) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    Row           source(sim, 1), target(sim, 1);
    const Floats  first{ 1 }, second{ 2 };
    set_async(stream, source, first);
    ggml_backend_tensor_copy_async(stream.get(), stream.get(), source.tensor, target.tensor);
    set_async(stream, source, second);
    ggml_backend_synchronize(stream.get());
    CHECK(target.now() == first && source.now() == second);
}

CASE(a_synchronous_copy_between_devices_is_one_copy) {
    const Simdev sim({ { "SIMDEV_DEVICES", "2" } });
    Row          source(sim, 1, "source", 0), target(sim, 1, "target", 1);
    source.put({ 4 });
    sim.forget_trace();
    ggml_backend_tensor_copy(source.tensor, target.tensor);
    CHECK(sim.trace(SIMDEV_KIND_COPY).size() == 1 && sim.trace(SIMDEV_KIND_GET).empty());
    CHECK(target.now() == Floats{ 4 });
}

CASE(a_copy_from_the_cpu_falls_back_to_ggmls_own) {
    const Simdev  sim;
    const Backend cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr)), stream = sim.stream();
    Row           source(ggml_backend_cpu_buffer_type(), 1), target(sim, 1);
    source.put({ 4 });
    ggml_backend_tensor_copy_async(cpu.get(), stream.get(), source.tensor, target.tensor);
    CHECK(target.now() == Floats{ 4 });
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
