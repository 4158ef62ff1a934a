"""The CUDA backend for pyggml: one loadable library, and where it is. Imports nothing of pyggml."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

LIBRARY = "libggml-cuda.so"
#: NVIDIA's own packages keep these outside the loader's path. In this order: each needs those before it.
_NEEDED = ("libcudart.so.*", "libcublasLt.so.*", "libcublas.so.*")


def library_path() -> str:
    """The library's path, with what it needs of NVIDIA's packages loaded before, if they are installed."""
    for library in _libraries_of_packages():
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return str(Path(__file__).with_name(LIBRARY))


def _libraries_of_packages() -> list[Path]:
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (package.submodule_search_locations or ())] if package else []
    return [path for pattern in _NEEDED for folder in folders for path in sorted(folder.glob(f"*/lib/{pattern}"))]
