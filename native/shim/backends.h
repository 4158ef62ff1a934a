// Where ggml's backends come from: what is compiled in, the folder of these libraries, and files that the caller names.
//
// Any thread may call these; they block while a library is loaded.
#pragma once

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

// Loads the backends of the folder that holds this library, and what GGML_BACKEND_PATH names. The current folder and
// that of the executable are not searched, from here on. Does nothing the second time.
PYGGML_API int pyggml_backends_load(pyggml_error * err);

// Loads one backend, a ggml library built for this ggml.
PYGGML_API int pyggml_backend_load_file(const char * path, pyggml_error * err);

#ifdef __cplusplus
}
#endif
