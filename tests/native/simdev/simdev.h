// The C interface of simdev besides that of ggml: knobs, held events, pending work, faults, and the trace.
//
// Obtained with ggml_backend_reg_get_proc_address(reg, "simdev_set") and so on, or with dlsym / ctypes from the same
// file that ggml loaded. All functions may be called from any thread; only simdev_drain blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMDEV_API __attribute__((visibility("default")))

enum simdev_kind {
    SIMDEV_KIND_SET,    // host to device
    SIMDEV_KIND_GET,    // device to host
    SIMDEV_KIND_COPY,   // device to device
    SIMDEV_KIND_MEMSET, // part of a tensor
    SIMDEV_KIND_CLEAR,  // a whole buffer
    SIMDEV_KIND_GRAPH,
    SIMDEV_KIND_RECORD, // an event is recorded on the stream
    SIMDEV_KIND_WAIT,   // the stream waits for an event
    SIMDEV_KIND_SYNC,   // the host waits for the stream
    SIMDEV_KIND_PIN,    // the caller's memory is pinned in place; host_pinned is 0 if that failed
    SIMDEV_KIND_UNPIN,
};

struct simdev_trace_entry {
    uint64_t id;                  // order of issue, from 1
    uint64_t done;                // order of execution, from 1; 0: not executed yet
    uint64_t stream;              // from 1, one per backend instance; 0: a synchronous call
    uint64_t device;              // from 0
    uint64_t kind;                // enum simdev_kind
    uint64_t bytes;               // what the link carries: all rows together; of a pin, the size of the range
    uint64_t n_rows;              // 1 for a 1-D transfer
    uint64_t offset_bytes;        // into the tensor
    uint64_t stride_tensor_bytes; // of a 2-D transfer, else 0
    uint64_t stride_host_bytes;
    uint64_t n_nodes;             // of a graph, else 0
    uint64_t modelled_ns;         // call cost + latency + bytes / bandwidth, by the knobs at issue
    uint64_t host_pinned;         // 1: the host side is pinned memory of this device
    uint64_t host_address;        // of the host side, of a pin the base of the range; else 0
    uint64_t fault;               // 1: executed after memory that it touches was freed
    char     name[64];            // of the tensor, for a graph of its last node
};

// Knobs: README.md lists them. False for a name that is none, or a value out of range.
SIMDEV_API bool simdev_set(const char * knob, uint64_t value);
SIMDEV_API bool simdev_get(const char * knob, uint64_t * value);

// Operations that were issued and not executed yet, over all streams.
SIMDEV_API size_t simdev_n_pending(void);
// Executes all of them, and blocks until that is done: forever if one waits for a held event.
SIMDEV_API void   simdev_drain(void);

// Recordings made while the knob `hold` was 1 and not released yet.
SIMDEV_API size_t simdev_n_held(void);
// Threads, streams' own included, that are blocked on a held event right now.
SIMDEV_API size_t simdev_n_blocked(void);
// Releases the n oldest, SIZE_MAX for all.
SIMDEV_API void   simdev_release(size_t n);

// Operations that were executed after memory that they touch was freed. Not reset by simdev_trace_clear.
SIMDEV_API size_t simdev_n_faults(void);

SIMDEV_API size_t simdev_trace_size(void);
SIMDEV_API bool   simdev_trace_get(size_t i, struct simdev_trace_entry * entry);
SIMDEV_API void   simdev_trace_clear(void);
// One JSON object per line. SIMDEV_TRACE_FILE names a file to which the same is written when the process exits.
SIMDEV_API bool   simdev_trace_dump(const char * path);

#ifdef __cplusplus
}
#endif
