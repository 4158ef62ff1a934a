// See host_memory.h.
#include "host_memory.h"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace {

// Memory is cleared at the first touch, and a page that holds data keeps it.
void touch(char * base, size_t size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < size; i += page) {
        volatile char & byte = base[i];
        byte = byte;
    }
}

} // namespace

extern "C" {

void * pyggml_host_reserve(size_t size, size_t alignment) {
    if (size == 0 || size > SIZE_MAX - alignment) {
        return nullptr;
    }
    void * const all = mmap(nullptr, size + alignment, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return nullptr;
    }
    char * const first = static_cast<char *>(all);
    const size_t before = (alignment - reinterpret_cast<uintptr_t>(first) % alignment) % alignment;
    if (before > 0) {
        munmap(first, before);
    }
    munmap(first + before + size, alignment - before);
    return first + before;
}

void pyggml_host_release(void * base, size_t size) {
    munmap(base, size);
}

bool pyggml_host_populate(void * base, size_t size) {
#ifdef MADV_HUGEPAGE
    madvise(base, size, MADV_HUGEPAGE); // a hint: without it the pages are small
#endif
#ifdef MADV_POPULATE_WRITE
    if (madvise(base, size, MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    if (errno != EINVAL) { // a kernel that does not know it
        return false;
    }
#endif
    touch(static_cast<char *>(base), size);
    return true;
}

void pyggml_host_discard(void * base, size_t size) {
    madvise(base, size, MADV_DONTNEED);
}

} // extern "C"
