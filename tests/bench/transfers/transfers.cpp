// Parks and restores one of four sequences that share a pool, and prints one JSON object: `scripts/bench transfers`.
//
//   transfers MODEL CELLS REPEATS STAGING_MIB TYPES        TYPES: cache types that are also compared, with commas
//
// "comb": the first half of the cells contiguous, then every fourth. "broken": runs of random length. "one_run":
// contiguous. Each repeat of a pattern also makes the copies to compare with: the same number of bytes as one contiguous
// copy between the device and pinned memory, and (fewer times, they are slow) the synchronous calls.

#include "../filled_pool.hpp"
#include "posted_calls.hpp"

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using filled_pool::Context;
using filled_pool::measured;
using posted::clock;

constexpr int n_synchronous = 3;

double ms_since(clock::time_point begin) { return std::chrono::duration<double, std::milli>(clock::now() - begin).count(); }

void must(bool condition, const std::string & what) {
    if (!condition) {
        throw std::runtime_error(what);
    }
}

// one line of the table
struct Series {
    std::map<std::string, std::vector<double>> values;

    void add(const std::string & key, double value) { values[key].push_back(value); }
};

void fill_cells(llama_context * context, const std::string & pattern, int n_cells) {
    const int n_contiguous = pattern == "one_run" ? n_cells : pattern == "comb" ? n_cells / 2 : 0;
    const auto owners = filled_pool::owners_of_cells(n_cells, n_contiguous, pattern == "comb" ? 1 : 24);
    must(filled_pool::fill_cells(context, owners), std::to_string(owners.size()) + " cells do not decode: pass fewer");
}

std::vector<uint8_t> saved_state(llama_context * context) {
    std::vector<uint8_t> state(llama_state_seq_get_size_ext(context, measured, 0));
    must(llama_state_seq_get_data_ext(context, state.data(), state.size(), measured, 0) == state.size(), "the state was not saved");
    return state;
}

// One contiguous copy between pinned memory and the device, on a stream of its own.
class Contiguous {
  public:
    Contiguous(ggml_backend_dev_t dev, size_t size) : n_bytes(size), stream(ggml_backend_dev_init(dev, nullptr)), event(ggml_backend_event_new(dev)) {
        auto * host_type = ggml_backend_dev_host_buffer_type(dev);
        host.reset(ggml_backend_buft_alloc_buffer(host_type ? host_type : ggml_backend_cpu_buffer_type(), size));
        meta.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
        tensor = ggml_new_tensor_1d(meta.get(), GGML_TYPE_I8, static_cast<int64_t>(size));
        device.reset(ggml_backend_alloc_ctx_tensors(meta.get(), stream.get()));
        must(host && device && stream && event, "no memory for the contiguous copy");
        std::memset(ggml_backend_buffer_get_base(host.get()), 1, size);
    }

    double copy_ms(bool out) const {
        void * data = ggml_backend_buffer_get_base(host.get());
        const auto begin = clock::now();
        if (out) {
            ggml_backend_tensor_get_async(stream.get(), tensor, data, 0, n_bytes);
        } else {
            ggml_backend_tensor_set_async(stream.get(), tensor, data, 0, n_bytes);
        }
        ggml_backend_event_record(event.get(), stream.get());
        while (!ggml_backend_event_query(event.get())) {
        }
        return ms_since(begin);
    }

  private:
    size_t n_bytes;
    ggml_backend_ptr stream;
    ggml_backend_event_ptr event;
    ggml_context_ptr meta;
    ggml_tensor * tensor;
    ggml_backend_buffer_ptr host, device;
};

using Copy = std::unique_ptr<llama_state_seq_copy, decltype(&llama_state_seq_copy_free)>;

void wait_for(const Copy & copy) {
    while (!llama_state_seq_copy_done(copy.get())) {
    }
}

// One time on the thread that issues: all of it, and from the first posted call to the last.
struct Issued {
    double issue_ms = 0;
    double post_ms = 0;
    posted::Calls calls;

    template <typename Work>
    explicit Issued(Work work) {
        posted::calls = {};
        const auto begin = clock::now();
        work();
        issue_ms = ms_since(begin);
        calls = posted::calls;
        post_ms = calls.milliseconds();
    }
};

void note(Series & row, std::initializer_list<Issued> issued) {
    std::map<std::string, double> sums;
    for (const auto & one : issued) {
        sums["issue_ms"] += one.issue_ms;
        sums["post_ms"] += one.post_ms;
        sums["n_graphs"] += one.calls.n_graphs;
        sums["n_copies"] += one.calls.n_copies;
        sums["posted_bytes"] += static_cast<double>(one.calls.n_bytes);
    }
    for (const auto & [key, sum] : sums) {
        row.add(key, sum);
    }
}

// From the order to the end: size, serialisation and posting are the issue. The sequence keeps its cells.
void park(llama_context * context, const Copy & copy, Series & row) {
    const auto begin = clock::now();
    const Issued issued([&] {
        const size_t n_bytes = llama_state_seq_get_size_ext(context, measured, 0);
        must(llama_state_seq_copy_save(copy.get(), measured, n_bytes, 0) == n_bytes, "the park was refused");
    });
    const bool frees_on_issue = llama_state_seq_copy_frees_on_issue(copy.get(), measured);
    wait_for(copy);
    row.add("total_ms", ms_since(begin));
    row.add("frees_on_issue", frees_on_issue);
    note(row, { issued });
}

// In one call: what the staging memory can hold is on its way while the cells are looked for.
void restore(const Copy & copy, size_t n_bytes, Series & row) {
    const auto begin = clock::now();
    const Issued issued([&] {
        must(llama_state_seq_copy_restore(copy.get(), measured, n_bytes, 0) == n_bytes, "the restore was refused");
    });
    wait_for(copy);
    row.add("total_ms", ms_since(begin));
    note(row, { issued });
}

// In two calls, as the server does it, so that no cells are taken while the state is on its way.
void restore_in_steps(const Copy & copy, size_t n_bytes, Series & row) {
    const auto begin = clock::now();
    bool is_prefetched = false;
    const Issued prefetch([&] { is_prefetched = llama_state_seq_copy_prefetch(copy.get()); });
    wait_for(copy);
    const auto scatter_begin = clock::now();
    const Issued scatter([&] {
        must(llama_state_seq_copy_restore(copy.get(), measured, n_bytes, 0) == n_bytes, "the restore was refused");
    });
    wait_for(copy);
    row.add("total_ms", ms_since(begin));
    row.add("holds_cells_ms", ms_since(scatter_begin));
    row.add("is_prefetched", is_prefetched);
    note(row, { prefetch, scatter });
}

void print_series(const char * name, const Series & row, const char * end) {
    std::printf("   \"%s\": {", name);
    const char * comma = "";
    for (const auto & [key, values] : row.values) {
        std::printf("%s\n    \"%s\": [", comma, key.c_str());
        for (size_t i = 0; i < values.size(); i++) {
            std::printf("%s%.6g", i > 0 ? ", " : "", values[i]);
        }
        std::printf("]");
        comma = ",";
    }
    std::printf("}%s\n", end);
}

void measure(llama_context * context, ggml_backend_dev_t dev, const std::string & pattern, int n_cells, int n_repeats) {
    fill_cells(context, pattern, n_cells);
    auto * memory = llama_get_memory(context);
    const auto before = saved_state(context);

    Copy copy(llama_state_seq_copy_init(context), llama_state_seq_copy_free);
    must(copy && llama_state_seq_copy_buf_resize(copy.get(), before.size()), "this device does not copy asynchronously");
    const Contiguous contiguous(dev, before.size());

    Series parks, restores, restores_in_steps, contiguous_out, contiguous_in, synchronous_out, synchronous_in;
    const auto sync_save = [&] {
        auto state = before;
        const auto begin = clock::now();
        must(llama_state_seq_get_data_ext(context, state.data(), state.size(), measured, 0) == state.size(), "not saved");
        synchronous_out.add("total_ms", ms_since(begin));
    };
    const auto sync_restore = [&] {
        const auto begin = clock::now();
        must(llama_state_seq_set_data_ext(context, before.data(), before.size(), measured, 0) == before.size(), "not restored");
        synchronous_in.add("total_ms", ms_since(begin));
    };
    for (int i = 0; i < n_repeats; i++) {
        if (i < n_synchronous) {
            sync_save();
        }
        contiguous_out.add("total_ms", contiguous.copy_ms(true));
        park(context, copy, parks);
        must(std::memcmp(llama_state_seq_copy_buf(copy.get()), before.data(), before.size()) == 0, pattern + ": other bytes after a park");
        must(llama_memory_seq_rm(memory, measured, -1, -1), "the sequence was not removed");
        contiguous_in.add("total_ms", contiguous.copy_ms(false));
        restore(copy, before.size(), restores);
        must(saved_state(context) == before, pattern + ": other bytes after a restore");
        must(llama_memory_seq_rm(memory, measured, -1, -1), "the sequence was not removed");
        restore_in_steps(copy, before.size(), restores_in_steps);
        must(saved_state(context) == before, pattern + ": other bytes after a restore in two steps");
        if (i < n_synchronous) {
            must(llama_memory_seq_rm(memory, measured, -1, -1), "the sequence was not removed");
            sync_restore();
            must(saved_state(context) == before, pattern + ": other bytes after a synchronous restore");
        }
    }

    std::printf("  \"%s\": {\"bytes\": %zu, \"is_pinned\": %s,\n", pattern.c_str(), before.size(),
                llama_state_seq_copy_buf_is_pinned(copy.get()) ? "true" : "false");
    print_series("park", parks, ",");
    print_series("restore", restores, ",");
    print_series("restore_in_steps", restores_in_steps, ",");
    print_series("contiguous_park_reference", contiguous_out, ",");
    print_series("contiguous_restore_reference", contiguous_in, ",");
    print_series("synchronous_park_reference", synchronous_out, ",");
    print_series("synchronous_restore_reference", synchronous_in, "}");
}

Context make_context(const filled_pool::Model & model, int n_cells, size_t n_bytes_staging, ggml_type type) {
    auto params = filled_pool::pool_params(n_cells, n_bytes_staging);
    params.type_k = params.type_v = type;
    Context context = filled_pool::make_context(model, params);
    must(context != nullptr, "no context of " + std::to_string(params.n_ctx) + " cells");
    return context;
}

ggml_type type_of(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const char * known = ggml_type_name(static_cast<ggml_type>(i));
        if (known && name == known) {
            return static_cast<ggml_type>(i);
        }
    }
    throw std::runtime_error(name + ": no such cache type");
}

// Bytes, and so rows by position, before a park and after its restore.
bool is_equal_for(const filled_pool::Model & model, ggml_type type, size_t n_bytes_staging) {
    constexpr int n_cells = 64;
    const Context context = make_context(model, n_cells, n_bytes_staging, type);
    fill_cells(context.get(), "broken", n_cells);
    const auto before = saved_state(context.get());
    Copy copy(llama_state_seq_copy_init(context.get()), llama_state_seq_copy_free);
    must(copy && llama_state_seq_copy_buf_resize(copy.get(), before.size()), "this device does not copy asynchronously");
    Series ignored;
    park(context.get(), copy, ignored);
    llama_memory_seq_rm(llama_get_memory(context.get()), measured, -1, -1);
    restore(copy, before.size(), ignored);
    const bool is_equal = saved_state(context.get()) == before;
    llama_memory_seq_rm(llama_get_memory(context.get()), measured, -1, -1);
    restore_in_steps(copy, before.size(), ignored);
    return is_equal && saved_state(context.get()) == before;
}

void print_types(const filled_pool::Model & model, const std::string & names, size_t n_bytes_staging) {
    std::printf("  \"equal_after_restore\": {");
    std::stringstream list(names);
    const char * comma = "";
    for (std::string name; std::getline(list, name, ',');) {
        std::printf("%s\"%s\": %s", comma, name.c_str(), is_equal_for(model, type_of(name), n_bytes_staging) ? "true" : "false");
        comma = ", ";
    }
    std::printf("}\n");
}

// The device that holds the model's layers: the first one that is not the CPU.
ggml_backend_dev_t first_device() {
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        if (ggml_backend_dev_type(ggml_backend_dev_get(i)) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            return ggml_backend_dev_get(i);
        }
    }
    throw std::runtime_error("there is no device that copies asynchronously: build with one, or name a backend in GGML_BACKEND_PATH");
}

void print_devices() {
    std::printf(" \"devices\": [");
    const char * comma = "";
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        auto * dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            std::printf("%s\"%s\"", comma, ggml_backend_dev_description(dev));
            comma = ", ";
        }
    }
    std::printf("],\n");
}

int run(char ** argv) {
    const int n_cells = std::atoi(argv[2]), n_repeats = std::atoi(argv[3]);
    const size_t n_bytes_staging = std::strtoull(argv[4], nullptr, 10) << 20;
    const auto model = filled_pool::load_model(argv[1], [](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_CONT) {
            std::fputs(text, stderr);
        }
    });
    auto * dev = first_device();
    must(model != nullptr, std::string(argv[1]) + ": not loaded");
    char description[128] = {};
    llama_model_desc(model.get(), description, sizeof(description));

    std::printf("{\"n_cells\": %d, \"model\": \"%s\",\n", n_cells, description);
    print_devices();
    std::printf(" \"patterns\": {\n");
    {
        const Context context = make_context(model, n_cells, n_bytes_staging, GGML_TYPE_F16);
        std::fprintf(stderr, "a pool of %u cells\n", llama_n_ctx(context.get()));
        const char * patterns[] = { "comb", "broken", "one_run" };
        for (const char * pattern : patterns) {
            std::fprintf(stderr, "%s: %d times\n", pattern, n_repeats);
            measure(context.get(), dev, pattern, n_cells, n_repeats);
            std::printf(pattern == patterns[2] ? " },\n" : " ,\n");
        }
    }
    print_types(model, argv[5], n_bytes_staging);
    std::printf("}\n");
    return 0;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: transfers MODEL CELLS REPEATS STAGING_MIB TYPES\n");
        return 2;
    }
    try {
        return run(argv);
    } catch (const std::exception & error) {
        std::fprintf(stderr, "transfers: %s\n", error.what());
        return 1;
    }
}
