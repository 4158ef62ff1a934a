// Loading of ggml's backends: see backends.h.
#include "backends.h"

#include "call_guard.hpp"
#include "ggml-backend.h"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <string>

static std::string own_folder() {
    Dl_info info = {};
    if (dladdr(reinterpret_cast<const void *>(&pyggml_backends_load), &info) == 0 || info.dli_fname == nullptr) {
        throw std::runtime_error("the folder of pyggml's libraries cannot be found: reinstall pyggml");
    }
    return std::filesystem::absolute(info.dli_fname).parent_path().string();
}

extern "C" int pyggml_backends_load(pyggml_error * err) {
    return pyggml_call(err, [] {
        static std::once_flag once;
        std::call_once(once, [] {
            ggml_backend_set_search_path(own_folder().c_str());
            ggml_backend_load_all();
        });
    });
}

extern "C" int pyggml_backend_load_file(const char * path, pyggml_error * err) {
    return pyggml_call(err, [&]() -> int {
        return ggml_backend_load(path) != nullptr ?
                   PYGGML_OK :
                   pyggml_fail_with_log(err, PYGGML_E_INVALID, std::string("cannot load the backend ") + path);
    });
}
