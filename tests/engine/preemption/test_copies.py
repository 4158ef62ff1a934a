"""Copies that complete later: who holds cells until when, who waits for whom, and how everything ends meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyggml_server.engine.batch.build import Part
from pyggml_server.engine.batch.decode import STATUS_NO_ROOM, run_batch
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.lifecycle.snapshot import slot_snapshot
from pyggml_server.engine.preemption import copies, waits
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.messages import Notice
from pyggml_server.native.runtime import BatchArrays, Row, Sample
from pyggml_server.planner.plan import Action, Park, Plan, Reason, Restore, WaitForPark

from tests.engine.fakes import N_STATE_BYTES, FakeTask, HeldTransfer, StagedTransfer, generating_state, held

PARK = Park(0, Reason.STEP_SHORT)
RESTORE = Restore(0, Reason.HEAD_OF_LINE)
WAIT = WaitForPark(0, Reason.STEP_SHORT)
WHERE_A_CANCEL_MAY_MEET_A_SLOT = {
    "generating": [],
    "park in flight": [PARK],
    "parked": [PARK, WAIT],
    "restore in flight": [PARK, WAIT, RESTORE],
}


@pytest.fixture
def log() -> list[str]:
    """What transfers and pool were asked to do, in order."""
    return []


@pytest.fixture
def state(log: list[str]) -> EngineState:
    """Two generating slots whose copies complete when the test says so."""
    return generating_state([HeldTransfer(log), HeldTransfer(log)], log)


def carry_out(state: EngineState, *actions: Action) -> None:
    assert Applier(state).carry_out(Plan(actions)) is None


def notices(state: EngineState) -> list[str]:
    return [message.text for message in state.outbox if isinstance(message, Notice)]


def test_a_park_keeps_its_cells_until_its_copy_completes(state: EngineState, log: list[str]) -> None:
    carry_out(state, PARK)
    copies.poll(state)
    assert (state.slot(0).phase, state.slot(0).holds_cells, log) == (SlotPhase.PREEMPTING, True, ["save 0"])
    held(state, 0).complete()
    copies.poll(state)
    assert (state.slot(0).phase, state.slot(0).holds_cells) == (SlotPhase.PREEMPTED, False)
    assert log == ["save 0", "release 0"]


def test_a_staged_park_gives_its_cells_back_at_once_and_completes_later(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log)], log)
    carry_out(state, PARK)
    assert (state.slot(0).phase, state.slot(0).holds_cells) == (SlotPhase.PREEMPTING, False)
    held(state, 0).complete()
    copies.poll(state)
    assert (state.slot(0).phase, log) == (SlotPhase.PREEMPTED, ["save 0", "release 0"])


def test_a_restored_slot_runs_once_its_copy_has_completed_and_not_before(state: EngineState) -> None:
    carry_out(state, PARK, WAIT, RESTORE)
    copies.poll(state)
    assert (state.slot(0).phase, state.slot(0).holds_cells) == (SlotPhase.RESTORING, True)
    assert notices(state) == ["preempted"]
    held(state, 0).complete()
    copies.poll(state)
    assert state.slot(0).phase is SlotPhase.GENERATING
    assert notices(state) == ["preempted", "resumed"]


def test_a_plan_that_waits_for_a_park_goes_on_when_its_cells_are_free(state: EngineState, log: list[str]) -> None:
    carry_out(state, PARK, WAIT)
    assert log == ["save 0", "wait for save 0", "release 0"]
    assert state.slot(0).phase is SlotPhase.PREEMPTED


def test_waiting_for_a_park_that_has_completed_already_does_nothing(state: EngineState, log: list[str]) -> None:
    carry_out(state, PARK, WAIT, WAIT)
    assert log == ["save 0", "wait for save 0", "release 0"]


def test_bytes_and_seconds_are_counted_when_a_copy_completes(state: EngineState) -> None:
    times = iter([1.0, 1.25, 3.0])  # started, issued, completed
    state.clock = lambda: next(times)
    carry_out(state, PARK)
    tally = state.counters.tally
    assert (tally.preemptions_total, tally.parked_bytes_total) == (1, 0)
    held(state, 0).complete()
    copies.poll(state)
    assert (tally.preemptions_total, tally.parked_bytes_total, tally.park_seconds_total) == (1, N_STATE_BYTES, 2.0)


def test_time_in_copies_counts_as_parked(state: EngineState) -> None:
    now_s = [10.0]
    state.clock = lambda: now_s[0]
    carry_out(state, PARK)
    now_s[0] = 12.0
    assert slot_snapshot(state.slot(0), now_s[0]).parked_ms == 2000
    carry_out(state, WAIT, RESTORE)
    now_s[0] = 15.0
    assert slot_snapshot(state.slot(0), now_s[0]).is_transferring
    held(state, 0).complete()
    copies.poll(state)
    assert cast(FakeTask, state.slot(0).active_job.task).pauses_us == [5_000_000]
    assert slot_snapshot(state.slot(0), now_s[0]).parked_ms == 5000


def test_the_log_tells_reason_cells_bytes_issue_and_copy_time(
    state: EngineState, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([1.0, 1.0005, 1.002])
    state.clock = lambda: next(times)
    with caplog.at_level(logging.INFO):
        carry_out(state, PARK, WAIT)
    assert [record.getMessage() for record in caplog.records] == [
        "slot 0: the first park has a buffer of 0.00 MiB, pinned",
        "slot 0: parked task 10 (no room for the next step): 3 cells, 0.00 MiB, issued in 0.50 ms, completed after "
        "2.00 ms, 0.00 GB/s",
    ]


def test_a_shift_waits_for_every_copy_that_touches_the_pool(state: EngineState, log: list[str]) -> None:
    carry_out(state, PARK, WAIT, RESTORE, Park(1, Reason.STEP_SHORT))
    log.clear()
    waits.before_shift(state)
    assert log == []  # nothing shifts
    state.slot(1).has_pending_shift = True
    waits.before_shift(state)
    assert log == ["wait for restore 0", "wait for save 1", "release 1"]
    assert not copies.are_under_way(state)


def test_a_shift_does_not_wait_for_a_staged_park(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log), HeldTransfer(log)], log)
    carry_out(state, PARK)
    state.slot(1).has_pending_shift = True
    waits.before_shift(state)
    assert log == ["save 0", "release 0"]


class FullRuntime:
    """Has no room until the pool has been given cells back; takes note of the width of each try."""

    n_batch = 8
    is_unified = True

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def step(self, batch: BatchArrays, rows: list[Row], _overlapped: Callable[[], None]) -> tuple[int, list[Sample]]:
        assert len(rows) >= 1
        self.log.append(f"decode {len(batch.token)}")
        return STATUS_NO_ROOM, []


def test_a_decode_without_room_waits_for_parks_in_their_order_before_it_gives_up_any_width(
    state: EngineState, log: list[str]
) -> None:
    state.runtime = cast(Any, FullRuntime(log))
    carry_out(state, Park(1, Reason.LOOKAHEAD_SHORT), PARK)
    log.clear()
    task = cast(FakeTask, state.slot(0).active_job.task)
    runs = generating_state([HeldTransfer(log)], log).slot(0)
    runs.active_job.task = cast(Any, task)
    run_batch(state, [Part(runs, [5, 6], is_prompt=True, samples=False)])
    waited = ["wait for save 1", "release 1", "decode 2", "wait for save 0", "release 0", "decode 2"]
    assert log[: 1 + len(waited)] == ["decode 2", *waited]
    assert log[1 + len(waited)] == "decode 2"  # half of n_batch is still the whole batch
    assert log[-2:] == ["decode 1", "no room for 1"]
    assert runs.job is not None


@pytest.mark.parametrize("way", WHERE_A_CANCEL_MAY_MEET_A_SLOT.values(), ids=WHERE_A_CANCEL_MAY_MEET_A_SLOT.keys())
def test_a_cancel_waits_for_the_copy_and_leaves_no_slot_stuck_and_no_memory_held(
    way: list[Action], state: EngineState, log: list[str]
) -> None:
    carry_out(state, *way)
    slot = state.slot(0)
    has_copy, holds_cells = slot.copy is not None, slot.holds_cells
    log.clear()
    endings.cancel(state, slot)
    assert [entry.startswith("wait for") for entry in log] == ([True] if has_copy else [])
    assert (slot.phase, slot.copy, slot.job) == (SlotPhase.IDLE, None, None)
    assert state.ram_held_bytes() == 0
    assert slot.tokens == ([1, 2, 3] if holds_cells else [])


def test_giving_the_transfers_up_waits_for_each_copy_first(state: EngineState, log: list[str]) -> None:
    carry_out(state, PARK, Park(1, Reason.STEP_SHORT))
    log.clear()
    endings.close_transfers(state)
    assert log == ["wait for save 0", "wait for save 1"]
    assert all(held(state, slot_id).is_closed for slot_id in range(2))
