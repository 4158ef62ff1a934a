// What the entry points of the bindings share: run, map exceptions, and say why with the lines that llama.cpp logged.
#pragma once

#include "error.h"
#include "log.h"

#include <string>

// An error whose message is `what`, followed by the ERROR lines of this thread since the call began.
inline int pyggml_fail_with_log(pyggml_error * err, int code, const std::string & what) {
    const std::string why = pyggml_log_recent_errors();
    return pyggml_fail(err, code, (why.empty() ? what : what + ": " + why).c_str());
}

// llama.cpp tells "no room" from "wrong state" only by what it logs. A test pins these words against the tree.
inline bool pyggml_log_says_no_room(const std::string & why) {
    return why.find("available cells in kv cache") != std::string::npos ||
           why.find("not enough cells in kv cache") != std::string::npos;
}

template <class F> int pyggml_call(pyggml_error * err, F && f) noexcept {
    pyggml_log_forget_errors();
    return pyggml_guard(err, std::forward<F>(f));
}
