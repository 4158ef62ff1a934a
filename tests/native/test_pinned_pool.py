"""The pool of pinned memory on simdev: how often it locks and unlocks, counted in the trace, never timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import NativeTests, run
from tests.native.pinned_pool_program import PIECE

PROGRAM = Path(__file__).parent / "pinned_pool_program.py"
ROOT = Path(__file__).parents[2]

RunCase = Callable[..., dict[str, Any]]


@pytest.fixture
def run_case(native_tests: NativeTests, smollm2_path: Path) -> RunCase:
    """Runs a case of the program with knobs of simdev; returns what it printed."""

    def run_program(case: str, **knobs: int) -> dict[str, Any]:
        env = {"GGML_BACKEND_PATH": str(native_tests.simdev), "PYTHONPATH": str(ROOT)}
        env |= {f"SIMDEV_{name.upper()}": str(value) for name, value in knobs.items()}
        done = run([sys.executable, PROGRAM, smollm2_path, case], env)
        assert done.returncode == 0, done.stderr[-4000:]
        result: dict[str, Any] = json.loads(done.stdout)
        return result | {"stderr": done.stderr}

    return run_program


def test_each_call_locks_one_piece(run_case: RunCase) -> None:
    said = run_case("grows")
    assert said["n_pins"] == [1, 2, 3]
    assert not said["again"]
    assert (said["pinned"], said["can_grow"]) == (3 * PIECE, True)


def test_two_devices_of_one_backend_need_one_locking(run_case: RunCase) -> None:
    assert run_case("grows", devices=2)["n_pins"] == [1, 2, 3]


def test_a_device_that_refuses_ends_the_growth_where_it_is(run_case: RunCase) -> None:
    said = run_case("grows", pin_fails_above_bytes=2 * PIECE)
    assert said["n_pins"] == [1, 2]
    assert (said["pinned"], said["can_grow"]) == (2 * PIECE, False)
    assert f"stays at {2 * PIECE} of {3 * PIECE} bytes: the device refused" in said["stderr"]


def test_a_device_that_cannot_lock_in_place_is_not_asked(run_case: RunCase) -> None:
    said = run_case("grows", pin=0)
    assert (said["n_pins"], said["pinned"], said["can_grow"]) == ([], 0, False)


def test_giving_back_is_accounting_and_only_a_trim_unlocks(run_case: RunCase) -> None:
    said = run_case("gives_back")
    assert said["side_by_side"]
    assert said["aligned"]
    assert said["held"] == PIECE // 2
    assert said["after"] == "this range was given back: take another one"
    assert said["unpins"] == [0, 2, 3]
    assert said["pinned"] == [2 * PIECE, PIECE]


def test_what_was_trimmed_is_locked_again_when_it_is_wanted(run_case: RunCase) -> None:
    said = run_case("grows_again")
    assert (said["filled"], said["pins"], said["unpins"]) == (2 * PIECE, 5, 3)


def test_the_pool_outlives_its_context_and_unlocks_all(run_case: RunCase) -> None:
    said = run_case("fills")
    assert (said["filled"], said["unpins"]) == (2 * PIECE, 0)
    assert said["all_pins"] == said["all_unpins"] == 2


def test_a_pool_with_a_range_in_use_is_not_closed(run_case: RunCase) -> None:
    said = run_case("refuses_to_close")
    assert said["said"] == "1 ranges of the pool are held: give them back first"
    assert said["unpins"] == 0
