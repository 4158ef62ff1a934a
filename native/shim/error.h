// How an error of the native layer reaches Python.
//
// Every entry point of the shim is `extern "C"` and noexcept, takes a `pyggml_error *` last (NULL: the caller only
// wants the code) and returns PYGGML_OK or one of the codes below. No C++ exception ever crosses the border.
// An error that was not raised leaves the struct untouched but for `code`, which is PYGGML_OK then.
// Any thread may use it: there is no shared state.
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#    define PYGGML_API __declspec(dllexport)
#else
#    define PYGGML_API __attribute__((visibility("default")))
#endif

enum pyggml_code {
    PYGGML_OK        = 0,
    PYGGML_E_INVALID = 1, // an argument was refused (std::invalid_argument, std::out_of_range, std::domain_error)
    PYGGML_E_NOMEM   = 2, // memory ran out (std::bad_alloc)
    PYGGML_E_RUNTIME = 3, // any other std::exception; the message is its what()
    PYGGML_E_UNKNOWN = 4, // something that is no std::exception was thrown
};

#define PYGGML_ERROR_MESSAGE_BYTES 4096

// The message is NUL-terminated UTF-8, cut at the size of the buffer.
struct pyggml_error {
    int32_t code;
    char    message[PYGGML_ERROR_MESSAGE_BYTES];
};

typedef struct pyggml_error pyggml_error;

#ifdef __cplusplus

#    include <cstring>
#    include <exception>
#    include <new>
#    include <stdexcept>
#    include <type_traits>
#    include <utility>

// Fills `err` and returns `code`, so that an entry point can write `return pyggml_fail(err, PYGGML_E_INVALID, "...")`.
inline int pyggml_fail(pyggml_error * err, int code, const char * message) noexcept {
    if (err != nullptr) {
        err->code      = code;
        const size_t n = strnlen(message, sizeof(err->message) - 1);
        memcpy(err->message, message, n);
        err->message[n] = '\0';
    }
    return code;
}

// Runs `f` and maps what it throws. `f` returns nothing (success) or an int (a code; it has filled `err` itself).
template <class F> int pyggml_guard(pyggml_error * err, F && f) noexcept {
    if (err != nullptr) {
        err->code = PYGGML_OK;
    }
    try {
        if constexpr (std::is_void_v<decltype(f())>) {
            std::forward<F>(f)();
            return PYGGML_OK;
        } else {
            return std::forward<F>(f)();
        }
    } catch (const std::invalid_argument & e) {
        return pyggml_fail(err, PYGGML_E_INVALID, e.what());
    } catch (const std::out_of_range & e) {
        return pyggml_fail(err, PYGGML_E_INVALID, e.what());
    } catch (const std::domain_error & e) {
        return pyggml_fail(err, PYGGML_E_INVALID, e.what());
    } catch (const std::bad_alloc &) {
        return pyggml_fail(err, PYGGML_E_NOMEM, "out of memory");
    } catch (const std::exception & e) {
        return pyggml_fail(err, PYGGML_E_RUNTIME, e.what());
    } catch (...) {
        return pyggml_fail(err, PYGGML_E_UNKNOWN, "an exception of unknown type was thrown");
    }
}

#endif
