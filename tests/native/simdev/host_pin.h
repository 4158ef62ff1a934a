// Page-locking of the caller's memory in place: what ggml finds as ggml_backend_host_memory_pin and _unpin.
#pragma once

#include <cstddef>

namespace simdev {

// False, with nothing changed, for an empty range, one of which a part is known already, and beyond the knob
// `pin_fails_above_bytes`.
bool pin_host_memory(void * base, size_t n_bytes);

// Of a range that was pinned with just this base and size; ends the process for any other.
void unpin_host_memory(void * base, size_t n_bytes);

} // namespace simdev
