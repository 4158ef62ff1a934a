#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Build number and upstream commit of the tree ("b0-0c1e57098"). Static storage: never freed, never changes.
const char * pyggml_shim_version(void);

#ifdef __cplusplus
}
#endif
