"""Makes the cffi builder of `_pyggml` from native/cdef/*.h. Build time only; compiles nothing itself.

The generated source includes the real headers and is compiled as C++, so a declaration here that does not match its
header fails the build instead of a call.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

MODULE_NAME = "_pyggml"

# In this order: a declaration may use types of the files before it only.
CDEF_ORDER = (
    "error.h",
    "backends.h",
    "llama.h",
    "calls.h",
    "host_memory.h",
    "transfer.h",
    "version.h",
    "server.h",
    "server_cache.h",
    "server_media.h",
    "server_model_files.h",
    "server_tools.h",
)

NATIVE = Path(__file__).resolve().parent


def cdef_files(folder: Path = NATIVE / "cdef") -> list[Path]:
    """The declaration files in their order. A file that the order does not name is an error, not a silent omission."""
    unknown = sorted({path.name for path in folder.glob("*.h")} - set(CDEF_ORDER))
    if unknown:
        raise ValueError(f"native/cdef/{unknown[0]} is not in CDEF_ORDER: add it to native/build_ffi.py")
    return [folder / name for name in CDEF_ORDER if (folder / name).exists()]


def includes(folder: Path = NATIVE / "shim") -> str:
    """The headers that the declarations are compiled against: shim/*.h. What is C++ only is called *.hpp there."""
    public = [path.name for path in sorted(folder.glob("*.h"))]
    return "\n".join(f'#include "{name}"' for name in ["llama.h", *public])


def make_ffi(folder: Path = NATIVE / "cdef") -> FFI:
    """The FFI with all declarations and the source set; the caller emits and compiles it."""
    ffi = FFI()
    for path in cdef_files(folder):
        ffi.cdef(path.read_text(encoding="ascii"))
    ffi.set_source(MODULE_NAME, includes(), source_extension=".cpp")
    return ffi
