#include "memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace simdev {

namespace {

// NaN in every float type.
constexpr int RUBBISH = 0xFF;

struct Live {
    std::mutex                     mutex;
    std::map<uintptr_t, MemoryRef> by_base;
};

// Never destroyed: buffers may be freed by other libraries' static destructors.
Live & live() {
    static Live & instance = *new Live;
    return instance;
}

// The caller holds the mutex.
MemoryRef find_locked(uintptr_t address) {
    const auto next = live().by_base.upper_bound(address);
    if (next == live().by_base.begin()) {
        return nullptr;
    }
    const MemoryRef & memory = std::prev(next)->second;
    return address - std::prev(next)->first < memory->n_bytes ? memory : nullptr;
}

} // namespace

Memory::~Memory() {
    if (is_ours) {
        free(base);
    }
}

MemoryRef allocate(size_t n_bytes, Place place) {
    void * base = nullptr;
    if (posix_memalign(&base, ALIGNMENT_BYTES, n_bytes > 0 ? n_bytes : 1) != 0) {
        return nullptr;
    }
    memset(base, RUBBISH, n_bytes);
    auto memory = std::make_shared<Memory>(static_cast<char *>(base), n_bytes, place, true);
    const std::lock_guard<std::mutex> lock(live().mutex);
    live().by_base[reinterpret_cast<uintptr_t>(base)] = memory;
    return memory;
}

bool adopt_pinned(char * base, size_t n_bytes) {
    const auto first = reinterpret_cast<uintptr_t>(base);
    auto       memory = std::make_shared<Memory>(base, n_bytes, Place::pinned, false);
    const std::lock_guard<std::mutex> lock(live().mutex);
    const auto next = live().by_base.lower_bound(first);
    if (find_locked(first) != nullptr || (next != live().by_base.end() && next->first - first < n_bytes)) {
        return false;
    }
    live().by_base[first] = std::move(memory);
    return true;
}

bool disown_pinned(const char * base, size_t n_bytes) {
    {
        const std::lock_guard<std::mutex> lock(live().mutex);
        const auto entry = live().by_base.find(reinterpret_cast<uintptr_t>(base));
        if (entry == live().by_base.end() || entry->second->is_ours || entry->second->n_bytes != n_bytes) {
            return false;
        }
    }
    release(base);
    return true;
}

MemoryRef find_memory(const void * address) {
    const std::lock_guard<std::mutex> lock(live().mutex);
    return find_locked(reinterpret_cast<uintptr_t>(address));
}

bool crosses_pinned_border(const void * first, size_t n_bytes) {
    if (n_bytes == 0) {
        return false;
    }
    const MemoryRef begin = find_memory(first);
    const MemoryRef end = find_memory(static_cast<const char *>(first) + n_bytes - 1);
    return begin != end && ((begin != nullptr && !begin->is_ours) || (end != nullptr && !end->is_ours));
}

void release(const void * address) {
    MemoryRef memory;
    {
        const std::lock_guard<std::mutex> lock(live().mutex);
        const auto entry = live().by_base.find(reinterpret_cast<uintptr_t>(address));
        if (entry == live().by_base.end()) {
            return;
        }
        memory = std::move(entry->second);
        live().by_base.erase(entry);
    }
    if (memory.use_count() > 1) {
        memory->freed.store(true);
        if (memory->is_ours) {
            memset(memory->base, RUBBISH, memory->n_bytes);
        }
    }
}

} // namespace simdev
