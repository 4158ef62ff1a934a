// Who owns which bytes: device memory, page-locked and pageable host memory.
//
// An operation that is issued keeps the memory that it touches. When a buffer is freed before the operation ran, its
// bytes are overwritten at once and stay mapped until the operation is done: a late read finds rubbish instead of luck,
// and a late write is lost. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace simdev {

enum class Place { device, pinned, pageable };

struct Memory {
    Memory(char * base, size_t n_bytes, Place place) : base(base), n_bytes(n_bytes), place(place) {}
    ~Memory();
    Memory(const Memory &) = delete;
    Memory & operator=(const Memory &) = delete;

    char * const      base;
    const size_t      n_bytes;
    const Place       place;
    std::atomic<bool> freed{ false };
};

using MemoryRef = std::shared_ptr<Memory>;

constexpr size_t ALIGNMENT_BYTES = 64;

// Null when the system has no more. Filled with rubbish, as a device's memory is.
MemoryRef allocate(size_t n_bytes, Place place);

// The live allocation that holds this address; null for memory that is not ours.
MemoryRef find_memory(const void * address);

// The caller will not touch it again. Operations still may.
void release(const void * address);

} // namespace simdev
