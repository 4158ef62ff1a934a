"""A fragmented state is saved and restored in a number of transfers that does not grow with its fragments.

Counted in simdev's trace, not timed. On buffers without 2-D copies too, and not at the price of other bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import NativeTests, run

PROGRAM = Path(__file__).parent / "state_transfers_program.py"
ROOT = Path(__file__).parents[2]
# K and V of SmolLM2's 30 layers, and one list of rows for all of them.
N_TENSORS, N_INDEX_LISTS = 60, 1


class Counts:
    """What the program says for a layout and simdev's variables; each process runs once."""

    def __init__(self, simdev: Path, model: Path) -> None:
        self.simdev, self.model = simdev, model
        self.known: dict[tuple[str, ...], dict[str, Any]] = {}

    def of(self, *arguments: str, copy_2d: int = 1) -> dict[str, Any]:
        key = (*arguments, str(copy_2d))
        if key not in self.known:
            env = {"GGML_BACKEND_PATH": str(self.simdev), "SIMDEV_COPY_2D": str(copy_2d), "PYTHONPATH": str(ROOT)}
            done = run([sys.executable, PROGRAM, self.model, *arguments], env)
            assert done.returncode == 0, done.stderr[-4000:]
            self.known[key] = json.loads(done.stdout)
        return self.known[key]


@pytest.fixture(scope="module")
def counts(native_tests: NativeTests, smollm2_path: Path) -> Counts:
    return Counts(native_tests.simdev, smollm2_path)


@pytest.mark.parametrize("copy_2d", [1, 0])
@pytest.mark.parametrize("layout", ["blocks", "comb", "irregular"])
@pytest.mark.parametrize("direction", ["n_save", "n_restore"])
def test_the_transfers_are_one_per_tensor(counts: Counts, layout: str, copy_2d: int, direction: str) -> None:
    n_transfers = counts.of(layout, copy_2d=copy_2d)[direction]
    assert n_transfers == N_TENSORS + (0 if layout == "blocks" else N_INDEX_LISTS)


@pytest.mark.parametrize("copy_2d", [1, 0])
@pytest.mark.parametrize("layout", ["blocks", "comb", "irregular"])
def test_neither_the_state_nor_a_neighbour_changes(counts: Counts, layout: str, copy_2d: int) -> None:
    assert counts.of(layout, copy_2d=copy_2d)["unchanged"]
    assert counts.of(layout, copy_2d=copy_2d)["state"] == counts.of(layout, copy_2d=1 - copy_2d)["state"]


def test_without_device_memory_regular_rows_still_make_one_transfer_per_tensor(counts: Counts) -> None:
    exhausted = counts.of("comb", "exhausted")
    assert (exhausted["n_save"], exhausted["n_restore"]) == (N_TENSORS, N_TENSORS)
    assert exhausted["unchanged"]


def test_without_device_memory_the_rows_are_copied_one_by_one(counts: Counts) -> None:
    gathered, exhausted = counts.of("irregular"), counts.of("irregular", "exhausted")
    assert exhausted["n_save"] > 10 * gathered["n_save"]
    assert exhausted["unchanged"]
    assert exhausted["state"] == gathered["state"]
