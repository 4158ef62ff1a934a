"""The test programs that the series adds to llama.cpp, run on a dummy model of every architecture, as upstream does.

test_touched_programs.py runs those of upstream's own that the series touches.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from build_support.check import new_tests
from build_support.layout import of_this_clone
from tests.upstream.conftest import Compile

# those that need no model; test-memory-n-cells has a test of its own
WITHOUT_MODEL = ("test-backend-buffer-2d", "test-backend-event-query", "test-io-batch", "test-io-gather")


def test_every_program_that_the_series_adds_is_run_here() -> None:
    assert sorted(new_tests(of_this_clone().tree)) == sorted([*WITHOUT_MODEL, "test-memory-n-cells"])


@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_a_program_that_needs_no_model_ends_well(compiled: Compile, name: str) -> None:
    done = subprocess.run([compiled(name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_cells_are_counted_right_in_every_kind_of_memory(compiled: Compile, dummy_models: Path) -> None:
    done = subprocess.run([compiled("test-memory-n-cells"), dummy_models], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") > 100
    assert ": FAIL" not in said
