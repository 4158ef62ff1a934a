"""The setuptools command: native libraries first, then `_pyggml`, then the libraries into the folder next to it, and
the chat page into the server's package.

The module looks for its libraries in _pyggml.libs next to itself ($ORIGIN), wherever it is installed. They are copied
there last and all at once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from build_support.layout import of_this_clone
from build_support.native import NativeBuild, build_native
from build_support.notices import write_notices
from build_support.page import PLACE, put_page
from native.build_ffi import MODULE_NAME, make_ffi

LIBS = f"{MODULE_NAME}.libs"
# One module for every Python from 3.11 on.
LIMITED_API = "0x030B0000"
LINKED = ("pyggml-shim", "pyggml-llama", "pyggml-ggml", "pyggml-ggml-base")


def extension() -> Extension:
    """Named early, so that wheels are of this platform; its source is written when the build runs."""
    source = of_this_clone().build / "cffi" / f"{MODULE_NAME}.cpp"
    return Extension(
        MODULE_NAME,
        sources=[os.path.relpath(source, of_this_clone().root)],
        language="c++",
        define_macros=[("Py_LIMITED_API", LIMITED_API)],
        py_limited_api=True,
    )


class BuildNative(build_ext):
    """build_ext with the CMake build in front of it and the libraries copied behind it."""

    def run(self) -> None:
        native = build_native(of_this_clone())
        self.write_source(native)
        super().run()
        in_place = self.inplace or getattr(self, "editable_mode", False)
        root = of_this_clone().root
        if in_place:
            for other in root.glob(f"{MODULE_NAME}.cpython-*.so"):
                other.unlink()  # Python would take it before the one that was just built
        self.put_libraries(native, root if in_place else Path(self.build_lib))
        if native.page is not None:
            put_page(native.page, root / "server" if in_place else Path(self.build_lib))

    def write_source(self, native: NativeBuild) -> None:
        """Always compiled again: a header of the tree may have changed without the declarations changing."""
        (module,) = self.extensions
        source = of_this_clone().root / module.sources[0]
        source.parent.mkdir(parents=True, exist_ok=True)
        make_ffi().emit_c_code(str(source))
        layout, tree = of_this_clone(), native.tree
        module.include_dirs = [str(path) for path in (layout.native / "shim", tree / "include", tree / "ggml/include")]
        module.library_dirs = [str(native.libraries[0].parent)]
        module.libraries = list(LINKED)
        module.extra_compile_args = ["-std=c++17"]
        origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
        module.extra_link_args = [f"-Wl,-rpath,{origin}/{LIBS}"]
        self.force = True

    def put_libraries(self, native: NativeBuild, folder: Path) -> None:
        target = folder / LIBS
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{LIBS}-") as temporary:
            fresh = Path(temporary) / LIBS
            fresh.mkdir()
            for library in native.libraries:
                shutil.copy2(library, fresh)
            write_notices(native.tree, fresh)
            if target.exists():
                target.replace(Path(temporary) / "old")
            fresh.replace(target)

    def get_outputs(self) -> list[str]:
        libraries = (Path(self.build_lib) / LIBS).glob("*")
        page = (path for path in (Path(self.build_lib) / PLACE).rglob("*") if path.is_file())
        return [*super().get_outputs(), *(str(path) for path in (*libraries, *page))]
