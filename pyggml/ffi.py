"""The only door to the compiled module: `ffi`, `lib`, and `call`, which turns a code and a message into an exception.

Compares what the module was compiled against with the library that is loaded, at import and not at the first call. Any
thread may use it; it holds no lock while a native call runs (cffi releases the GIL).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyggml.errors import InvalidArgumentError, NativeError, OutOfMemoryError, PyggmlError

if TYPE_CHECKING:
    from _pyggml import CData

try:
    from _pyggml import ffi, lib
except ImportError as missing:
    raise ImportError(
        f"the compiled module _pyggml cannot be imported ({missing}): build and install it with `pip install .` "
        "in a checkout of pyggml, or run ./scripts/serve once, which does that in .venv"
    ) from missing

__all__ = ["CALLS_VERSION", "CData", "call", "check", "error_slot", "ffi", "lib", "on_return"]

if not TYPE_CHECKING:
    CData = ffi.CData

# The version of native/shim/calls.h that these Python files were written for.
CALLS_VERSION = 1


def _refuse_mismatch() -> None:
    for what, compiled, loaded in (
        ("the call interface", CALLS_VERSION, lib.pyggml_calls_version()),
        ("the call interface", lib.PYGGML_CALLS_VERSION, lib.pyggml_calls_version()),
        ("llama_model_params", ffi.sizeof("struct llama_model_params"), lib.pyggml_sizeof_model_params()),
        ("llama_context_params", ffi.sizeof("struct llama_context_params"), lib.pyggml_sizeof_context_params()),
    ):
        if compiled != loaded:
            raise ImportError(
                f"_pyggml was compiled for another native library ({what}: {compiled}, loaded library: {loaded}): "
                "reinstall with `pip install --force-reinstall .`"
            )


_refuse_mismatch()

_local = threading.local()
_after_call: list[Callable[[], None]] = []


def on_return(hook: Callable[[], None]) -> None:
    """Runs `hook` after every native call, on the calling thread (the log drain registers itself here)."""
    if hook not in _after_call:
        _after_call.append(hook)


def error_slot() -> CData:
    """This thread's `pyggml_error *`, made once. Overwritten by the thread's next failing call."""
    slot: CData | None = getattr(_local, "slot", None)
    if slot is None:
        slot = _local.slot = ffi.new("pyggml_error *")
    return slot


def check(code: int, slot: CData, error: type[PyggmlError] = NativeError) -> None:
    """Raises what `code` means, with the message in `slot`. `error` is the class for a failure inside llama.cpp."""
    for hook in _after_call:
        hook()
    if code == lib.PYGGML_OK:
        return
    message = bytes(ffi.string(slot.message)).decode("utf-8", "replace")
    if code == lib.PYGGML_E_INVALID:
        raise InvalidArgumentError(message)
    if code == lib.PYGGML_E_NOMEM:
        raise OutOfMemoryError(message)
    raise error(message)


def call(function: Callable[..., int], *arguments: object, error: type[PyggmlError] = NativeError) -> None:
    """Calls an entry point of the shim with `arguments` and this thread's error slot, and checks the result."""
    slot = error_slot()
    check(function(*arguments, slot), slot, error)
