#include "knobs.h"

#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char ** environ;

namespace simdev {

namespace {

constexpr uint64_t ANY = UINT64_MAX;

struct Row {
    const char *          name;
    uint64_t              least;
    uint64_t              most;
    std::atomic<uint64_t> value;
};

// In the order of enum Knob; the third number is the default. README.md says what each does.
std::array<Row, static_cast<size_t>(Knob::count)> rows = {{
    { "devices",               1, 4,   { 1 }          },
    { "memory_bytes",          1, ANY, { 8ULL << 30 } },
    { "max_buffer_bytes",      0, ANY, { 0 }          },
    { "device_ids",            0, 1,   { 0 }          },
    { "async",                 0, 1,   { 1 }          },
    { "events",                0, 1,   { 1 }          },
    { "event_query",           0, 1,   { 1 }          },
    { "copy_2d",               0, 1,   { 1 }          },
    { "host_buffer",           0, 1,   { 1 }          },
    { "pin",                   0, 1,   { 1 }          },
    { "pin_fails_above_bytes", 0, ANY, { ANY }        },
    { "pageable_above_bytes",  0, ANY, { ANY }        },
    { "pageable_blocks",       0, 1,   { 0 }          },
    { "late",                  0, 1,   { 1 }          },
    { "hold",                  0, 1,   { 0 }          },
    { "sync_drains",           0, 1,   { 0 }          },
    { "waits",                 0, 1,   { 1 }          },
    { "call_ns",               0, ANY, { 0 }          },
    { "latency_ns",            0, ANY, { 0 }          },
    { "bytes_per_s",           0, ANY, { 0 }          },
    { "offload_min_batch",     0, ANY, { 32 }         },
}};

Row * find(const std::string & name) {
    for (Row & row : rows) {
        if (name == row.name) {
            return &row;
        }
    }
    return nullptr;
}

std::string take(const std::string & variable, const std::string & text) {
    std::string name = variable.substr(strlen("SIMDEV_"));
    for (char & letter : name) {
        letter = static_cast<char>(tolower(static_cast<unsigned char>(letter)));
    }
    if (find(name) == nullptr) {
        return variable + " is no knob of simdev: see tests/native/simdev/README.md for their names";
    }
    char * end = nullptr;
    errno = 0;
    const uint64_t value = strtoull(text.c_str(), &end, 10);
    const bool is_number = !text.empty() && isdigit(static_cast<unsigned char>(text[0])) && *end == '\0' && errno == 0;
    if (!is_number || !set_knob(name, value)) {
        const Row & row = *find(name);
        return variable + "=" + text + " is no whole number from " + std::to_string(row.least) + " to " +
               std::to_string(row.most) + ": set one, or unset it";
    }
    return "";
}

} // namespace

uint64_t knob(Knob which) {
    return rows[static_cast<size_t>(which)].value.load(std::memory_order_relaxed);
}

bool set_knob(const std::string & name, uint64_t value) {
    Row * row = find(name);
    if (row == nullptr || value < row->least || value > row->most) {
        return false;
    }
    row->value.store(value, std::memory_order_relaxed);
    return true;
}

bool get_knob(const std::string & name, uint64_t & value) {
    const Row * row = find(name);
    if (row == nullptr) {
        return false;
    }
    value = row->value.load(std::memory_order_relaxed);
    return true;
}

std::string read_environment() {
    for (char ** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const size_t      equals = text.find('=');
        const std::string name = text.substr(0, equals);
        if (text.rfind("SIMDEV_", 0) != 0 || name == "SIMDEV_TRACE_FILE") {
            continue;
        }
        const std::string wrong = take(name, text.substr(equals + 1));
        if (!wrong.empty()) {
            return wrong;
        }
    }
    return "";
}

} // namespace simdev
