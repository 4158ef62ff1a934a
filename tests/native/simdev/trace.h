// The trace: one entry per operation, made when it is issued, numbered again when it is executed. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "simdev.h"

namespace simdev {

struct TraceEntry {
    simdev_trace_entry    issued{}; // not changed after add_trace
    std::atomic<uint64_t> done{ 0 };
    std::atomic<bool>     fault{ false };
};

using TraceRef = std::shared_ptr<TraceEntry>;

// Gives it an id and keeps it.
TraceRef add_trace(const simdev_trace_entry & issued);

void mark_done(TraceEntry & entry);
void mark_fault(TraceEntry & entry);

size_t n_faults();
size_t trace_size();
bool   trace_get(size_t i, simdev_trace_entry & out);
void   trace_clear();
bool   trace_dump(const std::string & path);

} // namespace simdev
