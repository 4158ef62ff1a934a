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

} // namespace

Memory::~Memory() {
    free(base);
}

MemoryRef allocate(size_t n_bytes, Place place) {
    void * base = nullptr;
    if (posix_memalign(&base, ALIGNMENT_BYTES, n_bytes > 0 ? n_bytes : 1) != 0) {
        return nullptr;
    }
    memset(base, RUBBISH, n_bytes);
    auto memory = std::make_shared<Memory>(static_cast<char *>(base), n_bytes, place);
    const std::lock_guard<std::mutex> lock(live().mutex);
    live().by_base[reinterpret_cast<uintptr_t>(base)] = memory;
    return memory;
}

MemoryRef find_memory(const void * address) {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard<std::mutex> lock(live().mutex);
    auto next = live().by_base.upper_bound(wanted);
    if (next == live().by_base.begin()) {
        return nullptr;
    }
    const MemoryRef & memory = std::prev(next)->second;
    return wanted - std::prev(next)->first < memory->n_bytes ? memory : nullptr;
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
        memset(memory->base, RUBBISH, memory->n_bytes);
    }
}

} // namespace simdev
