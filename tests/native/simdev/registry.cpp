// What ggml finds when it loads the library: the registry entry, and our C interface by name.
#include "registry.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "event.h"
#include "host_pin.h"
#include "knobs.h"
#include "simdev.h"
#include "stream.h"
#include "trace.h"

namespace simdev {

namespace {

const char * get_name(ggml_backend_reg_t) {
    return "SIM";
}

size_t get_device_count(ggml_backend_reg_t) {
    return n_devices();
}

ggml_backend_dev_t get_device(ggml_backend_reg_t, size_t index) {
    return &device(index).ggml;
}

template <typename Function> void * address(Function * function) {
    return reinterpret_cast<void *>(function);
}

void * get_proc_address(ggml_backend_reg_t, const char * name) {
    static const struct {
        const char * name;
        void *       function;
    } rows[] = {
        { "ggml_backend_set_n_threads",     address(set_n_threads) },
        { "ggml_backend_host_memory_pin",   address(pin_host_memory) },
        { "ggml_backend_host_memory_unpin", address(unpin_host_memory) },
        { "simdev_set",                     address(simdev_set) },
        { "simdev_get",                     address(simdev_get) },
        { "simdev_n_pending",               address(simdev_n_pending) },
        { "simdev_drain",                   address(simdev_drain) },
        { "simdev_n_held",                  address(simdev_n_held) },
        { "simdev_n_blocked",               address(simdev_n_blocked) },
        { "simdev_release",                 address(simdev_release) },
        { "simdev_n_faults",                address(simdev_n_faults) },
        { "simdev_trace_size",              address(simdev_trace_size) },
        { "simdev_trace_get",               address(simdev_trace_get) },
        { "simdev_trace_clear",             address(simdev_trace_clear) },
        { "simdev_trace_dump",              address(simdev_trace_dump) },
    };
    if (knob(Knob::pin) == 0 && strncmp(name, "ggml_backend_host_memory_", 25) == 0) {
        return nullptr;
    }
    for (const auto & row : rows) {
        if (strcmp(row.name, name) == 0) {
            return row.function;
        }
    }
    return nullptr;
}

void dump_at_exit() {
    const char * path = getenv("SIMDEV_TRACE_FILE");
    if (path != nullptr && !trace_dump(path)) {
        fprintf(stderr, "simdev: SIMDEV_TRACE_FILE=%s cannot be written: name a file in a folder that exists\n", path);
    }
}

ggml_backend_reg make_reg() {
    ggml_backend_reg made{};
    made.api_version            = GGML_BACKEND_API_VERSION;
    made.iface.get_name         = get_name;
    made.iface.get_device_count = get_device_count;
    made.iface.get_device       = get_device;
    made.iface.get_proc_address = get_proc_address;
    return made;
}

} // namespace

} // namespace simdev

extern "C" SIMDEV_API ggml_backend_reg_t ggml_backend_init(void) {
    static ggml_backend_reg reg = simdev::make_reg();
    const std::string wrong = simdev::read_environment();
    if (!wrong.empty()) {
        fprintf(stderr, "simdev: %s\n", wrong.c_str());
        return nullptr;
    }
    simdev::make_devices(&reg);
    atexit(simdev::dump_at_exit);
    return &reg;
}

bool simdev_set(const char * knob, uint64_t value) {
    if (!simdev::set_knob(knob, value)) {
        return false;
    }
    simdev::offer_functions();
    for (const simdev::StreamRef & stream : simdev::live_streams()) {
        stream->wake();
    }
    return true;
}

bool simdev_get(const char * knob, uint64_t * value) {
    return simdev::get_knob(knob, *value);
}

size_t simdev_n_pending(void) {
    size_t n = 0;
    for (const simdev::StreamRef & stream : simdev::live_streams()) {
        n += stream->n_pending();
    }
    return n;
}

void simdev_drain(void) {
    for (const simdev::StreamRef & stream : simdev::live_streams()) {
        stream->wait(stream->n_issued());
    }
}

size_t simdev_n_held(void) {
    return simdev::n_held();
}

size_t simdev_n_blocked(void) {
    return simdev::n_blocked();
}

void simdev_release(size_t n) {
    simdev::release_held(n);
}

size_t simdev_n_faults(void) {
    return simdev::n_faults();
}

size_t simdev_trace_size(void) {
    return simdev::trace_size();
}

bool simdev_trace_get(size_t i, simdev_trace_entry * entry) {
    return simdev::trace_get(i, *entry);
}

void simdev_trace_clear(void) {
    simdev::trace_clear();
}

bool simdev_trace_dump(const char * path) {
    return simdev::trace_dump(path);
}
