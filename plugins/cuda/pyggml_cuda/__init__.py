"""The CUDA backend for pyggml: one loadable library, and where it is. Imports nothing of pyggml."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

LIBRARY = "libggml-cuda.so"
#: What the library is linked with, a name a line; written when the package is built.
NEEDED = "needed.txt"
REMEDY = (
    "libcuda comes with NVIDIA's driver, the others with CUDA, or with "
    "`pip install nvidia-cuda-runtime nvidia-cublas nvidia-nccl-cu13`"
)
#: NVIDIA's own packages keep these outside the loader's path. In this order: each needs those before it.
_IN_PACKAGES = ("libcudart.so.*", "libcublasLt.so.*", "libcublas.so.*", "libnccl.so.*")


def library_path() -> str:
    """The library's path, with what it needs loaded before, also from NVIDIA's packages.

    Raises OSError that names everything that is missing, and where it comes from.
    """
    for library in _libraries_of_packages():
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    here = Path(__file__).parent
    missing = [name for name in (here / NEEDED).read_text(encoding="ascii").split() if not _is_loadable(name)]
    if missing:
        raise OSError(f"{', '.join(missing)} cannot be loaded: {REMEDY}")
    return str(here / LIBRARY)


def _is_loadable(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _libraries_of_packages() -> list[Path]:
    package = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in (package.submodule_search_locations or ())] if package else []
    return [path for pattern in _IN_PACKAGES for folder in folders for path in sorted(folder.glob(f"*/lib/{pattern}"))]
