// Address space for a pool of host memory, and physical memory in it when it is wanted. Touches no llama.cpp object.
//
// Any thread may call these; a range is one caller's at a time. Sizes and addresses are multiples of the page size.
#pragma once

#include "error.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Address space only, no memory yet, at a multiple of `alignment`, a power of two. NULL if there is none.
PYGGML_API void * pyggml_host_reserve(size_t size, size_t alignment);
// Of all that pyggml_host_reserve gave.
PYGGML_API void   pyggml_host_release(void * base, size_t size);

// Maps memory to the range, in huge pages where the system has them, so that later use costs no page fault. Its content
// stays. Blocks while the system clears the pages. False if it has no more.
PYGGML_API bool pyggml_host_populate(void * base, size_t size);
// Gives the memory of the range back; the address space stays.
PYGGML_API void pyggml_host_discard(void * base, size_t size);

#ifdef __cplusplus
}
#endif
