"""Which gaps between tokens are counted, and which of them are those of survivors of a park or restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from pyggml_server.engine.batch.build import Part
from pyggml_server.engine.batch.decode import run_batch
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.reporting.counters import GAP_BOUNDS_S
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.slot import Job, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.transfer import Transfer
from pyggml_server.native.adapters import Adapters
from pyggml_server.native.runtime import BatchArrays, Row, Sample, StopType
from pyggml_server.native.task import Task
from pyggml_server.planner.plan import Reason
from pyggml_server.planner.policy import Policy


class FakeRuntime:
    """Every row of every batch gets a token."""

    n_batch = 8

    def step(self, _batch: BatchArrays, rows: list[Row], overlapped: Callable[[], None]) -> tuple[int, list[Sample]]:
        overlapped()
        return 0, [Sample([5], StopType.NONE, b"") for _ in rows]


class FakePool:
    """Notes nothing."""

    def note_decoded(self) -> None:
        return None


class FakeTask:
    """A task that is never asked for anything but its kind."""

    embeds = is_whole = False
    adapters = Adapters()

    def close(self) -> None:
        return None


def generating(slot_id: int) -> Slot:
    slot = Slot(slot_id, 64, cast(Transfer, None), tokens=[1])
    slot.job = Job(slot_id, cast(Task, FakeTask()), order=slot_id, prompt=[1], sampled=1)
    for phase in (SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT, SlotPhase.DONE_PROMPT, SlotPhase.GENERATING):
        slot.state.move(phase)
    return slot


@pytest.fixture
def state() -> EngineState:
    """Two generating slots, and a clock that goes on by one second with each look at it."""
    seconds: Iterator[float] = iter(float(i) for i in range(1000))
    slots = [generating(0), generating(1)]
    state = EngineState(cast(Any, FakeRuntime()), cast(Any, FakePool()), slots, Policy(), ram_limit_bytes=1000)
    state.clock = lambda: next(seconds)
    return state


def step(state: EngineState) -> None:
    """One token for slot 0; the clock is read twice."""
    run_batch(state, [Part(state.slot(0), [1], is_prompt=False, samples=True)])


def counts(state: EngineState) -> tuple[int, int]:
    """Gaps, and those of survivors."""
    return sum(state.counters.publish().gap_counts), sum(state.counters.publish().survivor_gap_counts)


def test_the_first_token_ends_no_gap(state: EngineState) -> None:
    step(state)
    assert counts(state) == (0, 0)


def test_a_gap_without_a_copy_is_no_survivors_gap(state: EngineState) -> None:
    step(state)
    step(state)
    assert counts(state) == (1, 0)
    assert state.counters.publish().gap_sum_s == 2.0
    assert state.counters.publish().gap_counts[GAP_BOUNDS_S.index(2.0)] == 1


def test_a_gap_in_which_a_copy_ended_is_a_survivors_gap(state: EngineState) -> None:
    step(state)
    state.last_copy_at_s = state.clock()
    step(state)
    assert counts(state) == (1, 1)
    assert state.counters.publish().survivor_gap_sum_s == 3.0


def test_a_copy_before_the_last_token_concerns_the_next_gap_no_more(state: EngineState) -> None:
    state.last_copy_at_s = state.clock()
    step(state)
    step(state)
    assert counts(state) == (1, 0)


def test_every_gap_under_a_copy_that_lasts_for_many_steps_is_a_survivors_gap(state: EngineState) -> None:
    step(state)
    state.slot(1).copy = CopyInFlight(
        CopyStep.PARK, Reason.STEP_SHORT, 1, 100, started_s=0.0, issue_s=0.0, frees_on_completion=True
    )
    for _ in range(5):
        step(state)
    assert counts(state) == (5, 5)
    state.slot(1).copy = None
    step(state)  # begun under the copy
    step(state)
    assert counts(state) == (7, 6)


def test_the_page_is_told_of_the_same_gaps(state: EngineState) -> None:
    for _ in range(4):
        step(state)
    assert [(gap.n_gaps, gap.worst_s) for gap in state.recorder.history.gap_seconds] == [(1, 2.0), (1, 2.0)]
