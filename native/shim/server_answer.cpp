// The order in which the calls of an answer come: see server_answer.hpp.
#include "server_answer.hpp"

void pyggml_call_order::flush(pyggml_diffs & out) {
    if (waits) {
        waits   = false;
        n_begun = waiting.tool_call_index + 1;
        out.push_back(waiting);
    }
}

pyggml_diffs pyggml_call_order::settle(const pyggml_diffs & diffs, bool is_end) {
    pyggml_diffs out;
    for (const auto & diff : diffs) {
        const bool is_call = diff.tool_call_index != std::string::npos;
        if (!is_call || (waits && waiting.tool_call_index != diff.tool_call_index)) {
            flush(out);
        }
        if (!is_call) {
            out.push_back(diff);
        } else if (diff.tool_call_index < n_begun) {
            out.emplace_back().tool_call_index           = diff.tool_call_index;
            out.back().tool_call_delta.arguments = diff.tool_call_delta.arguments;
        } else {
            if (!waits) {
                waiting                 = {};
                waiting.tool_call_index = diff.tool_call_index;
                waits                   = true;
            }
            if (!diff.tool_call_delta.name.empty()) {
                waiting.tool_call_delta.name = diff.tool_call_delta.name;
                waiting.tool_call_delta.id   = diff.tool_call_delta.id;
            }
            waiting.tool_call_delta.arguments += diff.tool_call_delta.arguments;
            if (!waiting.tool_call_delta.arguments.empty()) {
                flush(out);
            }
        }
    }
    if (is_end) {
        flush(out);
    }
    return out;
}
