// The build that the shim was compiled in, for error reports. Touches no state; callable from any thread.
#include "version.h"

#include "build-info.h"

const char * pyggml_shim_version(void) {
    return llama_build_info();
}
