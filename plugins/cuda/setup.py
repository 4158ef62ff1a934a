"""Builds the CUDA backend as a loadable library from the patched tree of the clone that this folder is in."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CLONE))

from elftools.elf.elffile import ELFFile
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

from build_support.backend_library import build_backend
from build_support.build_error import BuildError

PREBUILT = "PYGGML_CUDA_LIBRARY"


def needed_by(library: Path) -> list[str]:
    """The libraries that it is linked with, without those of pyggml, which is there before."""
    with library.open("rb") as file:
        linked = [tag.needed for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    return [name for name in linked if not name.startswith("libpyggml-")]


class BuildWithLibrary(build_py):
    """build_py, and the library next to the package's own files."""

    def run(self) -> None:
        super().run()
        given = os.environ.get(PREBUILT)
        library = Path(given) if given else build_backend("cuda")
        if not library.is_file():
            raise BuildError(f"{PREBUILT}={library} is no file", "leave it out to build the library")
        package = Path(self.build_lib) / "pyggml_cuda"
        shutil.copy2(library, package / "libggml-cuda.so")
        (package / "needed.txt").write_text("\n".join(needed_by(library)), encoding="ascii")


class ForThisPlatform(Distribution):
    """A wheel with a library is for one platform, for every Python."""

    def has_ext_modules(self) -> bool:
        return True


try:
    setup(
        cmdclass={"build_py": BuildWithLibrary},
        distclass=ForThisPlatform,
        options={
            "build": {"build_base": str(CLONE / "build" / "plugin-cuda")},
            "bdist_wheel": {"py_limited_api": "cp311"},
        },
    )
except BuildError as failure:
    raise SystemExit(f"pyggml-cuda: {failure}") from None
