"""Calls into the server's half of the shim: what the server takes from the compiled module, through pyggml's own door.

Any thread. A failed call raises `NativeError` or another `PyggmlError`; nothing of C++ comes through in any other way.
"""

from __future__ import annotations

from typing import Any

from pyggml.errors import (
    BufferTooSmallError,
    InvalidArgumentError,
    NoRoomError,
    PyggmlError,
    StateError,
    UnsupportedError,
)
from pyggml.ffi import call, ffi, lib

__all__ = [
    "BufferTooSmallError",
    "InvalidArgumentError",
    "NoRoomError",
    "PyggmlError",
    "StateError",
    "UnsupportedError",
    "call",
    "ffi",
    "lib",
    "take_bytes",
]


def take_bytes(cdata: Any) -> bytes:
    """The content of a `pyggml_bytes *`, which is freed."""
    try:
        return bytes(ffi.buffer(cdata.data, cdata.size)) if cdata.data != ffi.NULL else b""
    finally:
        lib.pyggml_bytes_free(cdata)
