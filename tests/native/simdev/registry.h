// Functions of a backend that ggml finds by name.
#pragma once

#include "ggml-backend.h"

namespace simdev {

void set_n_threads(ggml_backend_t backend, int n_threads);

} // namespace simdev
