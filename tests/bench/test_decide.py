"""`scripts/bench decide`: what a call of the planner costs, counted in Python instructions, whatever is held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from pyggml_server.planner import View, decide
from pyggml_server.planner.plan import Park

from tests.bench.decide.__main__ import N_SLOTS, table
from tests.bench.decide.scenes import POLICY, SCENES
from tests.instructions import n_instructions


def cost(view: View) -> int:
    return n_instructions(partial(decide, view, POLICY))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_pass_costs_a_bounded_number_of_instructions_per_slot(scene: Callable[[int], View]) -> None:
    """The last column of `scripts/bench decide --json`; a plan that parks (the first look) costs its parks besides."""
    view = scene(64)
    assert cost(view) <= 400 * 64 + 30_000 * len([a for a in decide(view, POLICY).actions if isinstance(a, Park)])


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_four_times_the_slots_cost_little_more_than_four_times_as_much(scene: Callable[[int], View]) -> None:
    assert cost(scene(256)) <= 4.5 * cost(scene(64))


def test_instructions_are_counted_in_the_functions_that_a_call_calls() -> None:
    def called(n: int) -> int:
        return sum(range(n))

    def calls(n_times: int) -> None:
        for _ in range(n_times):
            called(3)

    once, twice, thrice = (n_instructions(partial(calls, n)) for n in (1, 2, 3))
    assert thrice - twice == twice - once > 5


def test_the_table_has_a_line_for_each_scene_and_a_column_for_each_size() -> None:
    rows = [{"scene": scene.__name__, "n_slots": n_slots, "best_us": 1.5} for scene in SCENES for n_slots in N_SLOTS]
    lines = table(rows).splitlines()
    assert len(lines) == 2 + len(SCENES)
    assert lines[2] == "| calm |" + " 1.5 us |" * len(N_SLOTS)
