#include "trace.h"

#include <cinttypes>
#include <cstdio>
#include <deque>
#include <mutex>

namespace simdev {

namespace {

struct Trace {
    std::mutex            mutex;
    std::deque<TraceRef>  entries;
    uint64_t              n_issued = 0;
    std::atomic<uint64_t> n_done{ 0 };
    std::atomic<size_t>   n_faults{ 0 };
};

// Never destroyed: streams may still run when the process exits.
Trace & trace() {
    static Trace & instance = *new Trace;
    return instance;
}

simdev_trace_entry snapshot(const TraceEntry & entry) {
    simdev_trace_entry out = entry.issued;
    out.done = entry.done.load();
    out.fault = entry.fault.load() ? 1 : 0;
    return out;
}

const char * kind_name(uint64_t kind) {
    static const char * const names[] = {
        "set", "get", "copy", "memset", "clear", "graph", "record", "wait", "sync", "pin", "unpin",
    };
    return names[kind];
}

std::string quoted(const char * text) {
    std::string out = "\"";
    for (; *text != '\0'; ++text) {
        const auto byte = static_cast<unsigned char>(*text);
        if (byte == '"' || byte == '\\') {
            out += '\\';
        }
        out += byte < 0x20 || byte > 0x7E ? '?' : *text;
    }
    return out + "\"";
}

void print(FILE * file, const simdev_trace_entry & e) {
    const struct {
        const char * name;
        uint64_t     value;
    } numbers[] = {
        { "id", e.id },
        { "done", e.done },
        { "stream", e.stream },
        { "device", e.device },
        { "bytes", e.bytes },
        { "n_rows", e.n_rows },
        { "offset_bytes", e.offset_bytes },
        { "stride_tensor_bytes", e.stride_tensor_bytes },
        { "stride_host_bytes", e.stride_host_bytes },
        { "n_nodes", e.n_nodes },
        { "modelled_ns", e.modelled_ns },
        { "host_pinned", e.host_pinned },
        { "host_address", e.host_address },
        { "fault", e.fault },
    };
    fprintf(file, "{\"kind\": \"%s\", \"name\": %s", kind_name(e.kind), quoted(e.name).c_str());
    for (const auto & number : numbers) {
        fprintf(file, ", \"%s\": %" PRIu64, number.name, number.value);
    }
    fprintf(file, "}\n");
}

} // namespace

TraceRef add_trace(const simdev_trace_entry & issued) {
    auto entry = std::make_shared<TraceEntry>();
    entry->issued = issued;
    const std::lock_guard<std::mutex> lock(trace().mutex);
    entry->issued.id = ++trace().n_issued;
    trace().entries.push_back(entry);
    return entry;
}

void mark_done(TraceEntry & entry) {
    entry.done.store(++trace().n_done);
}

void mark_fault(TraceEntry & entry) {
    entry.fault.store(true);
    ++trace().n_faults;
}

size_t n_faults() {
    return trace().n_faults.load();
}

size_t trace_size() {
    const std::lock_guard<std::mutex> lock(trace().mutex);
    return trace().entries.size();
}

bool trace_get(size_t i, simdev_trace_entry & out) {
    const std::lock_guard<std::mutex> lock(trace().mutex);
    if (i >= trace().entries.size()) {
        return false;
    }
    out = snapshot(*trace().entries[i]);
    return true;
}

void trace_clear() {
    const std::lock_guard<std::mutex> lock(trace().mutex);
    trace().entries.clear();
}

bool trace_dump(const std::string & path) {
    FILE * file = fopen(path.c_str(), "w");
    if (file == nullptr) {
        return false;
    }
    {
        const std::lock_guard<std::mutex> lock(trace().mutex);
        for (const TraceRef & entry : trace().entries) {
            print(file, snapshot(*entry));
        }
    }
    return fclose(file) == 0;
}

} // namespace simdev
