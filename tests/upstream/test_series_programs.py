"""The test programs that the series adds to llama.cpp, run on a dummy model of every architecture, as upstream does.

They are compiled here against the libraries of the build, so that the tree's own test suite need not be built.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.check import new_tests
from build_support.layout import of_this_clone
from build_support.tools import require_compiler

INCLUDES = ("include", "src", "common", "ggml/include", "ggml/src", "vendor")
# those that need no model; test-memory-n-cells has a test of its own
WITHOUT_MODEL = ("test-backend-buffer-2d", "test-backend-event-query", "test-io-batch", "test-io-gather")
LIBRARIES = ("llama-common", "llama", "ggml", "ggml-base")

Compile = Callable[[str], Path]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles one program of the tree's tests folder; returns its path."""
    layout, folder = of_this_clone(), tmp_path_factory.mktemp("programs")
    libraries = layout.build / "cmake" / "bin"

    def compile_program(name: str) -> Path:
        command = [require_compiler(os.environ), "-std=c++17", "-O1", str(layout.tree / "tests" / f"{name}.cpp")]
        command += [f"-I{layout.tree / include}" for include in INCLUDES]
        command += ["-o", str(folder / name), f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
        command += [f"-lpyggml-{library}" for library in LIBRARIES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / name

    return compile_program


@pytest.fixture(scope="module")
def dummy_models(compiled: Compile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of every architecture that the tree knows."""
    folder = tmp_path_factory.mktemp("models")
    done = subprocess.run(
        [compiled("test-llama-archs"), "-o", f"{folder}/"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_every_program_that_the_series_adds_is_run_here() -> None:
    assert sorted(new_tests(of_this_clone().tree)) == sorted([*WITHOUT_MODEL, "test-memory-n-cells"])


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_a_program_that_needs_no_model_ends_well(compiled: Compile, name: str) -> None:
    done = subprocess.run([compiled(name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_a_fragmented_restore_leaves_its_neighbours_untouched(compiled: Compile, smollm2_path: Path) -> None:
    command = [str(compiled("test-state-restore-fragmented")), "-m", str(smollm2_path), "-t", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_cells_are_counted_right_in_every_kind_of_memory(compiled: Compile, dummy_models: Path) -> None:
    done = subprocess.run([compiled("test-memory-n-cells"), dummy_models], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") > 100
    assert ": FAIL" not in said
