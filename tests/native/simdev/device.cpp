#include "device.h"

#include <array>

#include "event.h"
#include "knobs.h"

namespace simdev {

namespace {

// Never destroyed: ggml keeps the addresses.
std::array<Device, MAX_DEVICES> & all() {
    static auto & instance = *new std::array<Device, MAX_DEVICES>;
    return instance;
}

Device & self(ggml_backend_dev_t dev) {
    return *static_cast<Device *>(dev->context);
}

const char * get_name(ggml_backend_dev_t dev) {
    return self(dev).name.c_str();
}

const char * get_description(ggml_backend_dev_t dev) {
    return self(dev).description.c_str();
}

void get_memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    const size_t used = self(dev).used_bytes.load();
    *total = knob(Knob::memory_bytes);
    *free = *total > used ? *total - used : 0;
}

enum ggml_backend_dev_type get_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void get_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    *props = {};
    props->name = get_name(dev);
    props->description = get_description(dev);
    props->type = get_type(dev);
    props->device_id = knob(Knob::device_ids) == 1 ? self(dev).id.c_str() : nullptr;
    get_memory(dev, &props->memory_free, &props->memory_total);
    props->caps.async = knob(Knob::async) == 1;
    props->caps.host_buffer = knob(Knob::host_buffer) == 1;
    props->caps.events = knob(Knob::events) == 1;
}

ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *) {
    return make_backend(self(dev));
}

ggml_backend_buffer_type_t get_buffer_type(ggml_backend_dev_t dev) {
    return &self(dev).buffer_type;
}

ggml_backend_buffer_type_t get_host_buffer_type(ggml_backend_dev_t) {
    return host_buffer_type();
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    return cpu_device() != nullptr && ggml_backend_dev_supports_op(cpu_device(), op);
}

bool supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == get_buffer_type(dev);
}

// As a GPU does: a product with host weights is worth their transfer when the batch is large.
bool offload_op(ggml_backend_dev_t, const ggml_tensor * op) {
    const auto batch = static_cast<uint64_t>(op->op == GGML_OP_MUL_MAT_ID ? op->ne[2] : op->ne[1]);
    return (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && batch >= knob(Knob::offload_min_batch);
}

Event & event_of(ggml_backend_event_t event) {
    return *static_cast<Event *>(event->context);
}

ggml_backend_event_t event_new(ggml_backend_dev_t dev) {
    return new ggml_backend_event{ dev, new Event };
}

void event_free(ggml_backend_dev_t, ggml_backend_event_t event) {
    delete &event_of(event);
    delete event;
}

void event_synchronize(ggml_backend_dev_t, ggml_backend_event_t event) {
    wait_for(event_of(event).get());
}

#if GGML_BACKEND_API_VERSION >= 3
bool event_query(ggml_backend_dev_t, ggml_backend_event_t event) {
    return is_finished(event_of(event).get());
}
#endif

ggml_backend_device_i functions() {
    const bool has_events = knob(Knob::async) == 1 && knob(Knob::events) == 1;
    ggml_backend_device_i iface{};
    iface.get_name             = get_name;
    iface.get_description      = get_description;
    iface.get_memory           = get_memory;
    iface.get_type             = get_type;
    iface.get_props            = get_props;
    iface.init_backend         = init_backend;
    iface.get_buffer_type      = get_buffer_type;
    iface.get_host_buffer_type = knob(Knob::host_buffer) == 1 ? get_host_buffer_type : nullptr;
    iface.supports_op          = supports_op;
    iface.supports_buft        = supports_buft;
    iface.offload_op           = knob(Knob::offload_min_batch) > 0 ? offload_op : nullptr;
    iface.event_new            = has_events ? event_new : nullptr;
    iface.event_free           = has_events ? event_free : nullptr;
    iface.event_synchronize    = has_events ? event_synchronize : nullptr;
#if GGML_BACKEND_API_VERSION >= 3
    iface.event_query          = has_events && knob(Knob::event_query) == 1 ? event_query : nullptr;
#endif
    return iface;
}

} // namespace

void make_devices(ggml_backend_reg_t reg) {
    for (size_t i = 0; i < MAX_DEVICES; ++i) {
        Device & made = device(i);
        made.index = i;
        made.name = "SIM" + std::to_string(i);
        made.description = "simulated device " + std::to_string(i);
        made.id = "0000:f" + std::to_string(i) + ":00.0";
        made.ggml.reg = reg;
        made.ggml.context = &made;
        made.buffer_type = make_device_buffer_type(made);
    }
    offer_functions();
}

void offer_functions() {
    for (Device & made : all()) {
        made.ggml.iface = functions();
    }
}

size_t n_devices() {
    return knob(Knob::devices);
}

Device & device(size_t index) {
    return all()[index];
}

ggml_backend_dev_t cpu_device() {
    static const ggml_backend_dev_t found = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    return found;
}

} // namespace simdev
