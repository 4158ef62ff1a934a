// What ggml says when it loads the library that GGML_BACKEND_PATH names. pytest checks what is printed.
#include "simulated.h"

static void print_log(ggml_log_level, const char * text, void *) {
    fputs(text, stdout);
}

CASE(load_and_print_the_log) {
    ggml_log_set(print_log, nullptr);
    const bool is_loaded = ggml_backend_load(getenv("GGML_BACKEND_PATH")) != nullptr;
    printf("loaded: %s, devices: %zu\n", is_loaded ? "yes" : "no", ggml_backend_dev_count());
}

CASE(write_two_entries_to_the_trace) {
    const Simdev  sim;
    Row           row(sim, 2, "a \"quoted\" name");
    const Floats  written{ 1, 2 };
    const Backend stream = sim.stream(); // the last, so that it ends, and with it its work, before what it uses
    row.put(written);
    set_async(stream, row, written);
}

CASE(threads_are_set_by_the_function_that_ggml_looks_up) {
    const Simdev  sim;
    const Backend stream = sim.stream();
    sim.function<void(ggml_backend_t, int)>("ggml_backend_set_n_threads")(stream.get(), 1);
    CHECK(ggml_backend_reg_get_proc_address(sim.reg, "no such function") == nullptr);
}

int main(int argc, char ** argv) {
    return run_case(argc, argv);
}
