// A backend instance: one stream, and a CPU backend on which the stream's thread runs graphs. Issuing never executes
// anything on the caller's thread; with the knob `async` at 0 it blocks until the stream has.
#include <cstdio>
#include <cstring>

#include "device.h"
#include "event.h"
#include "graph_copy.h"
#include "knobs.h"
#include "link_cost.h"
#include "registry.h"
#include "simdev.h"
#include "stream.h"

namespace simdev {

namespace {

struct Backend {
    Device &         device;
    StreamRef        stream;
    ggml_backend_t   cpu; // the stream's thread only
    std::atomic<int> n_threads{ 2 };
};

Backend & self(ggml_backend_t backend) {
    return *static_cast<Backend *>(backend->context);
}

simdev_trace_entry entry(const Backend & backend, simdev_kind kind, const char * name) {
    simdev_trace_entry made{};
    made.stream = backend.stream->id;
    made.device = backend.device.index;
    made.kind = kind;
    snprintf(made.name, sizeof(made.name), "%s", name);
    return made;
}

uint64_t issue(Backend & backend, const simdev_trace_entry & made, std::function<void()> run,
               std::vector<MemoryRef> touches = {}) {
    charge_call();
    Operation operation;
    operation.run = std::move(run);
    operation.trace = add_trace(made);
    operation.touches = std::move(touches);
    operation.is_graph = made.kind == SIMDEV_KIND_GRAPH;
    return backend.stream->push(std::move(operation));
}

struct Rows {
    size_t offset, size, n_copies, stride_tensor, stride_data;
};

void move_rows(char * to, size_t to_stride, const char * from, size_t from_stride, const Rows & rows) {
    charge_transfer(rows.size * rows.n_copies);
    for (size_t i = 0; i < rows.n_copies; ++i) {
        memcpy(to + i * to_stride, from + i * from_stride, rows.size);
    }
}

// Between host memory and a tensor of this device; `run` moves the bytes.
void transfer(Backend & backend, simdev_kind kind, const ggml_tensor * tensor, const void * host, const Rows & rows,
              std::function<void()> run) {
    GGML_ASSERT(device_of(tensor) == &backend.device && "the tensor is not in this device's memory");
    GGML_ASSERT(!crosses_pinned_border(host, (rows.n_copies - 1) * rows.stride_data + rows.size) &&
                "the copy crosses the border of a pinned range");
    std::vector<MemoryRef> touches;
    bool                   is_pinned = false;
    touches.push_back(find_memory(static_cast<const char *>(tensor->data) + rows.offset));
    if (MemoryRef memory = find_memory(host)) {
        is_pinned = memory->place == Place::pinned;
        touches.push_back(std::move(memory));
    }
    simdev_trace_entry made = entry(backend, kind, tensor->name);
    made.bytes = rows.size * rows.n_copies;
    made.n_rows = rows.n_copies;
    made.offset_bytes = rows.offset;
    made.stride_tensor_bytes = rows.stride_tensor;
    made.stride_host_bytes = rows.stride_data;
    made.modelled_ns = modelled_ns(made.bytes);
    made.host_pinned = is_pinned;
    made.host_address = reinterpret_cast<uintptr_t>(host);
    const uint64_t position = issue(backend, made, std::move(run), std::move(touches));
    if (!is_pinned && knob(Knob::pageable_blocks) == 1) {
        backend.stream->wait(position);
    }
}

void set_rows(ggml_backend_t b, ggml_tensor * tensor, const void * data, const Rows & rows) {
    char * const       device = static_cast<char *>(tensor->data) + rows.offset;
    const char * const host = static_cast<const char *>(data);
    transfer(self(b), SIMDEV_KIND_SET, tensor, data, rows,
             [=] { move_rows(device, rows.stride_tensor, host, rows.stride_data, rows); });
}

void get_rows(ggml_backend_t b, const ggml_tensor * tensor, void * data, const Rows & rows) {
    const char * const device = static_cast<const char *>(tensor->data) + rows.offset;
    char * const       host = static_cast<char *>(data);
    transfer(self(b), SIMDEV_KIND_GET, tensor, data, rows,
             [=] { move_rows(host, rows.stride_data, device, rows.stride_tensor, rows); });
}

void set_tensor_async(ggml_backend_t b, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    set_rows(b, tensor, data, { offset, size, 1, 0, 0 });
}

void get_tensor_async(ggml_backend_t b, const ggml_tensor * tensor, void * data, size_t offset, size_t size) {
    get_rows(b, tensor, data, { offset, size, 1, 0, 0 });
}

void set_tensor_2d_async(ggml_backend_t b, ggml_tensor * tensor, const void * data, size_t offset, size_t size,
                         size_t n_copies, size_t stride_tensor, size_t stride_data) {
    set_rows(b, tensor, data, { offset, size, n_copies, stride_tensor, stride_data });
}

void get_tensor_2d_async(ggml_backend_t b, const ggml_tensor * tensor, void * data, size_t offset, size_t size,
                         size_t n_copies, size_t stride_tensor, size_t stride_data) {
    get_rows(b, tensor, data, { offset, size, n_copies, stride_tensor, stride_data });
}

void issue_record(Backend & backend, Event & event) {
    issue(backend, entry(backend, SIMDEV_KIND_RECORD, ""), [] {});
    event.set(record(backend.stream));
}

void issue_wait(Backend & backend, const RecordingRef & recording) {
    issue(backend, entry(backend, SIMDEV_KIND_WAIT, ""), [recording] { wait_for(recording); });
}

// What was issued to a stream so far; never held, because no event of the caller's is involved.
RecordingRef now_in(const Backend & backend) {
    return std::make_shared<const Recording>(Recording{ backend.stream, backend.stream->n_issued() });
}

// After all that both streams were given before, and before all that either is given later.
bool cpy_tensor_async(ggml_backend_t from, ggml_backend_t to, const ggml_tensor * src, ggml_tensor * dst) {
    if (!is_simdev(from) || !is_simdev(to)) {
        return false;
    }
    if (device_of(src) != &self(from).device || device_of(dst) != &self(to).device) {
        return false;
    }
    Backend &          source = self(from);
    const size_t       n_bytes = ggml_nbytes(src);
    simdev_trace_entry made = entry(source, SIMDEV_KIND_COPY, dst->name);
    made.bytes = n_bytes;
    made.n_rows = 1;
    made.modelled_ns = modelled_ns(n_bytes);
    if (from != to) {
        issue_wait(source, now_in(self(to)));
    }
    const Rows whole{ 0, n_bytes, 1, 0, 0 };
    char * const       to_bytes = static_cast<char *>(dst->data);
    const char * const from_bytes = static_cast<const char *>(src->data);
    issue(source, made, [=] { move_rows(to_bytes, 0, from_bytes, 0, whole); },
          { find_memory(dst->data), find_memory(src->data) });
    if (from != to) {
        issue_wait(self(to), now_in(source));
    }
    return true;
}

void synchronize(ggml_backend_t b) {
    const TraceRef traced = add_trace(entry(self(b), SIMDEV_KIND_SYNC, ""));
    self(b).stream->wait(self(b).stream->n_issued());
    mark_done(*traced);
}

void run_graph(ggml_backend_t cpu, int n_threads, ggml_cgraph * graph) {
    static const auto set_n_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(cpu_device()), "ggml_backend_set_n_threads"));
    if (set_n_threads != nullptr) {
        set_n_threads(cpu, n_threads);
    }
    const ggml_status status = ggml_backend_graph_compute(cpu, graph);
    GGML_ASSERT(status == GGML_STATUS_SUCCESS && "a deferred graph failed on the CPU backend");
}

ggml_status graph_compute(ggml_backend_t b, ggml_cgraph * graph) {
    Backend & backend = self(b);
    const int n_nodes = ggml_graph_n_nodes(graph);
    if (n_nodes == 0) {
        return GGML_STATUS_SUCCESS;
    }
    const auto         copied = std::make_shared<GraphCopy>(graph);
    simdev_trace_entry made = entry(backend, SIMDEV_KIND_GRAPH, ggml_graph_node(graph, n_nodes - 1)->name);
    made.n_nodes = static_cast<uint64_t>(n_nodes);
    made.modelled_ns = knob(Knob::call_ns);
    const int      n_threads = backend.n_threads.load();
    const auto     run = [cpu = backend.cpu, n_threads, copied] { run_graph(cpu, n_threads, copied->graph()); };
    const uint64_t position = issue(backend, made, run, copied->touches());
    if (knob(Knob::async) == 0) {
        backend.stream->wait(position);
    }
    return GGML_STATUS_SUCCESS;
}

void event_record(ggml_backend_t b, ggml_backend_event_t event) {
    issue_record(self(b), *static_cast<Event *>(event->context));
}

void event_wait(ggml_backend_t b, ggml_backend_event_t event) {
    const RecordingRef recording = static_cast<Event *>(event->context)->get();
    if (recording != nullptr && knob(Knob::waits) == 1) {
        issue_wait(self(b), recording);
    }
}

const char * get_name(ggml_backend_t b) {
    return self(b).device.name.c_str();
}

void free_backend(ggml_backend_t b) {
    self(b).stream->close();
    ggml_backend_free(self(b).cpu);
    delete &self(b);
    delete b;
}

ggml_backend_i functions() {
    const bool is_async = knob(Knob::async) == 1;
    const bool has_2d = is_async && knob(Knob::copy_2d) == 1;
    const bool has_events = is_async && knob(Knob::events) == 1;
    ggml_backend_i iface{};
    iface.get_name            = get_name;
    iface.free                = free_backend;
    iface.set_tensor_async    = is_async ? set_tensor_async : nullptr;
    iface.get_tensor_async    = is_async ? get_tensor_async : nullptr;
    iface.set_tensor_2d_async = has_2d ? set_tensor_2d_async : nullptr;
    iface.get_tensor_2d_async = has_2d ? get_tensor_2d_async : nullptr;
    iface.cpy_tensor_async    = is_async ? cpy_tensor_async : nullptr;
    iface.synchronize         = synchronize;
    iface.graph_compute       = graph_compute;
    iface.event_record        = has_events ? event_record : nullptr;
    iface.event_wait          = has_events ? event_wait : nullptr;
    return iface;
}

ggml_guid guid = { 0x73, 0x69, 0x6d, 0x64, 0x65, 0x76, 0x2d, 0x70, 0x79, 0x67, 0x67, 0x6d, 0x6c, 0x2d, 0x30, 0x31 };

} // namespace

ggml_backend_t make_backend(Device & device) {
    ggml_backend_t cpu = cpu_device() != nullptr ? ggml_backend_dev_init(cpu_device(), nullptr) : nullptr;
    if (cpu == nullptr) {
        fprintf(stderr, "simdev: ggml has no CPU backend to run graphs on: load it before\n");
        return nullptr;
    }
    auto * made = new Backend{ device, open_stream(device.index), cpu };
    return new ggml_backend{ &guid, functions(), &device.ggml, made };
}

bool is_simdev(ggml_backend_t backend) {
    return backend->guid == &guid;
}

void set_n_threads(ggml_backend_t backend, int n_threads) {
    self(backend).n_threads.store(n_threads);
}

} // namespace simdev
