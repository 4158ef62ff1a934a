"""How pressure on pools becomes a number of replicas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyggml_server.published import Counters, SlotSnapshot, Snapshot
from pyggml_server.ray.scaling import PRESSURE, PoolPressure, pressure


def slot(slot_id: int, n_tokens: int, *, runs: bool = True, is_parked: bool = False) -> SlotSnapshot:
    n_cells = 0 if is_parked else n_tokens
    return SlotSnapshot(slot_id, 1000, runs, n_prompt_tokens=n_tokens, n_cells=n_cells, is_preempted=is_parked)


def of(*slots: SlotSnapshot, n_line: int = 0) -> float:
    return pressure(Snapshot(slots, Counters(kv_cells=1000, requests_deferred=n_line)))


def test_idle_prompts_put_no_pressure_on_a_pool() -> None:
    assert of(slot(0, 900, runs=False), slot(1, 0, runs=False)) == 0


def test_parked_chats_count_as_if_they_were_in() -> None:
    assert of(slot(0, 900), slot(1, 600, is_parked=True)) == 1.5


def test_the_line_counts_as_slots_and_as_chats_like_those_that_run() -> None:
    assert of(slot(0, 300), slot(1, 0, runs=False), n_line=1) == 1.0
    assert of(slot(0, 700), slot(1, 700), n_line=2) == 2.8


def test_before_the_first_pass_there_is_none() -> None:
    assert pressure(Snapshot()) == 0


def wanted(*pressures: float, target: float = 0.8, n_now: int | None = None) -> int:
    n_now = len(pressures) if n_now is None else n_now
    measured = {PRESSURE: {f"replica {i}": value for i, value in enumerate(pressures)}} if pressures else {}
    context = SimpleNamespace(aggregated_metrics=measured, current_num_replicas=n_now, target_num_replicas=n_now)
    number, _ = PoolPressure(target)(context)
    return number


@pytest.mark.parametrize(
    ("pressures", "number"), [((0.8,), 1), ((0.9,), 2), ((1.6, 1.6), 4), ((0.1, 0.1, 0.1), 1), ((0.0,), 1)]
)
def test_replicas_are_as_many_as_bring_the_mean_to_the_target(pressures: tuple[float, ...], number: int) -> None:
    assert wanted(*pressures) == number


def test_replicas_that_have_told_nothing_yet_count_like_the_others() -> None:
    assert wanted(1.6, n_now=2) == 4


def test_without_a_measurement_nothing_changes() -> None:
    assert wanted(n_now=3) == 3
