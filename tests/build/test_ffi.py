"""The compiled module: which declarations go in, in which order, and that it finds the libraries next to it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from build_support.layout import of_this_clone
from build_support.tools import require_compiler
from native.build_ffi import CDEF_ORDER, cdef_files, includes, make_ffi


def test_every_declaration_file_is_in_the_order() -> None:
    names = [path.name for path in cdef_files()]
    assert names == [name for name in CDEF_ORDER if name in names]
    assert {path.name for path in (of_this_clone().native / "cdef").glob("*.h")} == set(names)


def test_a_declaration_file_that_the_order_does_not_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "stray.h").touch()
    with pytest.raises(ValueError, match=r"native/cdef/stray\.h is not in CDEF_ORDER"):
        cdef_files(tmp_path)


def test_the_source_includes_llama_and_every_public_header_of_the_shim(tmp_path: Path) -> None:
    for name in ("b.h", "a.h", "inside.hpp"):
        (tmp_path / name).touch()
    assert includes(tmp_path).split("\n") == ['#include "llama.h"', '#include "a.h"', '#include "b.h"']


def test_all_declarations_parse_together(tmp_path: Path) -> None:
    source = tmp_path / "_pyggml.cpp"
    make_ffi().emit_c_code(str(source))
    text = source.read_text(encoding="utf-8")
    assert '#include "llama.h"' in text
    assert "pyggml_shim_version" in text


@pytest.mark.built
@pytest.mark.parametrize(
    ("declaration", "compiles"),
    [
        ("const char * pyggml_shim_version(void);", True),
        ("int pyggml_shim_version(void);", False),
        ("const char * pyggml_shim_version(int verbose);", False),
        ("const char * pyggml_shim_vision(void);", False),
    ],
)
def test_a_declaration_that_does_not_match_its_header_fails_the_build(
    tmp_path: Path, declaration: str, compiles: bool
) -> None:
    declarations = tmp_path / "cdef"
    declarations.mkdir()
    (declarations / "version.h").write_text(declaration)
    source = tmp_path / "_pyggml.cpp"
    make_ffi(declarations).emit_c_code(str(source))
    layout = of_this_clone()
    folders = [
        sysconfig.get_path("include"),
        layout.native / "shim",
        layout.tree / "include",
        layout.tree / "ggml/include",
    ]
    command = [require_compiler(os.environ), "-std=c++17", "-fsyntax-only", *(f"-I{folder}" for folder in folders)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == compiles, done.stderr
    assert compiles or "pyggml_shim_v" in done.stderr


@pytest.mark.built
def test_the_module_reports_the_pinned_commit_from_any_folder(tmp_path: Path) -> None:
    code = "import _pyggml; print(_pyggml.ffi.string(_pyggml.lib.pyggml_shim_version()).decode())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "b0-0c1e57098\n"
