"""Compiles test programs of the tree against the libraries of the build; its own test suite need not be built."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.layout import of_this_clone
from build_support.tools import require_compiler
from tests.native.conftest import native_tests

__all__ = ["native_tests"]

INCLUDES = ("include", "src", "common", "ggml/include", "ggml/src", "vendor")
LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")
# Some of upstream's programs load no backend by themselves. Linked to each, so that GGML_BACKEND_PATH works.
LOADS_BACKENDS = Path(__file__).parent / "load_backends.cpp"

Compile = Callable[[str], Path]


def compile_command(name: str) -> list[str]:
    """Of one program of the tree's tests folder, without what it is linked to and where it goes.

    -O0: the largest of them takes long to compile and little to run.
    """
    tree = of_this_clone().tree
    includes = [f"-I{tree / include}" for include in INCLUDES]
    return [require_compiler(os.environ), "-std=c++17", "-O0", *includes, str(tree / "tests" / f"{name}.cpp")]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles one program of the tree's tests folder, once in a session; returns its path."""
    layout, folder = of_this_clone(), tmp_path_factory.mktemp("programs")
    libraries = layout.build / "cmake" / "bin"

    def compile_program(name: str) -> Path:
        if (folder / name).exists():
            return folder / name
        command = [*compile_command(name), str(LOADS_BACKENDS)]
        command += ["-o", str(folder / name), f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
        command += [f"-lpyggml-{library}" for library in LIBRARIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / name

    return compile_program


@pytest.fixture(scope="session")
def dummy_models(compiled: Compile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of every architecture that the tree knows."""
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [compiled("test-llama-archs"), "-o", f"{folder}/"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder
