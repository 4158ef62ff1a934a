// Who owns which bytes: device memory, pinned and pageable host memory.
//
// An operation that is issued keeps the memory that it touches. When a buffer is freed before the operation ran, its
// bytes are overwritten at once and stay mapped until the operation is done: a late read finds rubbish instead of luck,
// and a late write is lost. Memory of others that was pinned in place is known too, and left as it is.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace simdev {

enum class Place { device, pinned, pageable };

struct Memory {
    Memory(char * base, size_t n_bytes, Place place, bool is_ours)
        : base(base), n_bytes(n_bytes), place(place), is_ours(is_ours) {}
    ~Memory();
    Memory(const Memory &) = delete;
    Memory & operator=(const Memory &) = delete;

    char * const      base;
    const size_t      n_bytes;
    const Place       place;
    const bool        is_ours; // else pinned in place
    std::atomic<bool> freed{ false };
};

using MemoryRef = std::shared_ptr<Memory>;

constexpr size_t ALIGNMENT_BYTES = 64;

// Null when the system has no more. Filled with rubbish, as a device's memory is.
MemoryRef allocate(size_t n_bytes, Place place);

// Knows somebody else's memory as pinned from now on. False when a part of it is known already.
bool adopt_pinned(char * base, size_t n_bytes);
// Forgets it. False when no range was adopted with just this base and size.
bool disown_pinned(const char * base, size_t n_bytes);

// The live memory that holds this address; null for memory that is not known.
MemoryRef find_memory(const void * address);

// True when the bytes begin and end in different memory, and one of the two was pinned in place. CUDA refuses such
// a copy.
bool crosses_pinned_border(const void * first, size_t n_bytes);

// The caller will not touch it again. Operations still may.
void release(const void * address);

} // namespace simdev
