"""Compiles test programs of the tree against the libraries of the build; its own test suite need not be built.

With ccache, if it is there: the objects are made on their own, since it remembers no call that links too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.layout import of_this_clone
from build_support.tools import find_program, require_compiler
from tests.native.conftest import must, native_tests

__all__ = ["native_tests"]

INCLUDES = ("include", "src", "common", "ggml/include", "ggml/src", "vendor")
LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")
# Some of upstream's programs load no backend by themselves. Linked to each, so that GGML_BACKEND_PATH works.
LOADS_BACKENDS = Path(__file__).parent / "load_backends.cpp"

Compile = Callable[[str], Path]


def source_of(name: str) -> Path:
    """One program of the tree's tests folder."""
    return of_this_clone().tree / "tests" / f"{name}.cpp"


def compile_command(source: Path) -> list[str | Path]:
    """Of one source, without where it goes. -O1: without, those that compare states run half as long again."""
    tree = of_this_clone().tree
    includes = [f"-I{tree / include}" for include in INCLUDES]
    return [require_compiler(os.environ), "-std=c++17", "-O1", *includes, source]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles one program of the tree's tests folder, once in a session; returns its path."""
    layout, folder = of_this_clone(), tmp_path_factory.mktemp("programs")
    libraries = layout.build / "cmake" / "bin"
    ccache = find_program("ccache", os.environ)

    def object_of(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        if not made.exists():
            must([*([ccache] if ccache else []), *compile_command(source), "-c", "-o", made])
        return made

    def compile_program(name: str) -> Path:
        if not (folder / name).exists():
            objects = [object_of(source_of(name)), object_of(LOADS_BACKENDS)]
            linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-lpyggml-{library}" for library in LIBRARIES)]
            must([require_compiler(os.environ), *objects, "-o", folder / name, *linked])
        return folder / name

    return compile_program


@pytest.fixture(scope="session")
def dummy_models(compiled: Compile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of every architecture that the tree knows."""
    folder = tmp_path_factory.mktemp("models")
    must([compiled("test-llama-archs"), "-o", f"{folder}/"])
    return folder
