"""Restores in two steps: to staging memory without cells, then cells, scatter and running in one pass."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from pyggml_server.engine.batch import context_shift
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.lifecycle.snapshot import slot_snapshot
from pyggml_server.engine.preemption import copies, waits
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.preemption.observe import observe
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.shared_prompt import n_promised_cells
from pyggml_server.engine.slots.slot import SharedPrompt, Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.messages import Failed, Notice
from pyggml_server.planner.plan import Park, Plan, Reason, Restore

from tests.engine.fakes import N_STATE_BYTES, FakeTransfer, StagedTransfer, generating_state, held

PARK, RESTORE = Park(0, Reason.STEP_SHORT), Restore(0, Reason.HEAD_OF_LINE)


@pytest.fixture
def log() -> list[str]:
    """What transfers and pool were asked to do, in order."""
    return []


@pytest.fixture
def state(log: list[str]) -> EngineState:
    """Slot 0's restore is on its way to staging memory, slot 1 generates."""
    made = generating_state([StagedTransfer(log), StagedTransfer(log)], log)
    carry_out(made, PARK)
    complete(made)
    log.clear()
    carry_out(made, RESTORE)
    return made


def carry_out(state: EngineState, *actions: Park | Restore) -> None:
    """A pass with this plan: what restores do behind the batch is done."""
    assert Applier(state).carry_out(Plan(actions)) is None
    copies.advance_overlapped(state)


def complete(state: EngineState, slot_id: int = 0) -> None:
    """A pass that finds the slot's copy ended."""
    held(state, slot_id).complete()
    pass_by(state)


def pass_by(state: EngineState) -> None:
    """A pass with no plan."""
    copies.poll(state)
    copies.advance_overlapped(state)


def copies_of(state: EngineState) -> list[CopyInFlight]:
    return [slot.copy for slot in state.slots if slot.copy is not None]


def notices(state: EngineState) -> list[str]:
    return [message.text for message in state.outbox if isinstance(message, Notice)]


def test_where_others_decode_each_step_waits_until_the_device_has_their_batch(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log), StagedTransfer(log)], log)
    carry_out(state, PARK)
    complete(state)
    log.clear()
    assert Applier(state).carry_out(Plan((RESTORE,))) is None
    copies.poll(state)
    assert log == []
    copies.advance_overlapped(state)
    assert log == ["prefetch"]
    held(state, 0).complete()
    copies.poll(state)
    assert state.slot(0).phase is SlotPhase.RESTORING
    copies.advance_overlapped(state)
    assert (log, state.slot(0).phase) == (["prefetch", "restore 0"], SlotPhase.GENERATING)


def test_where_others_decode_a_state_comes_in_parts_that_complete_before_the_next_batch(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log), StagedTransfer(log)], log)
    state.pace = cast(Any, FixedPace(40))
    carry_out(state, PARK)
    complete(state)
    log.clear()
    carry_out(state, RESTORE)
    assert log == ["prefetch 40"]
    pass_by(state)  # it is not there yet
    assert log == ["prefetch 40"]
    for _ in range(2):
        complete(state)
    assert log == ["prefetch 40"] * 3
    assert N_STATE_BYTES == 100
    assert state.slot(0).phase is SlotPhase.RESTORING
    complete(state)
    assert (log[3:], state.slot(0).phase) == (["restore 0"], SlotPhase.GENERATING)


def test_what_a_family_has_sent_already_is_not_counted_again(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log) for _ in range(3)], log)
    pace = FixedPace(60)
    state.pace = cast(Any, pace)
    shared = SharedPrompt(2, list(state.slots[:2]), is_cut_in_park=True)
    for slot in state.slots[:2]:
        slot.shared, slot.active_job.has_siblings = shared, True
    carry_out(state, PARK)
    held(state, 0).state_bytes = 50  # in one part; the other's in two
    for slot_id in range(2):
        complete(state, slot_id)
    carry_out(state, RESTORE)
    for slot_id in range(2):
        held(state, slot_id).complete()
    pass_by(state)
    assert pace.sent == [50 + 60, 40]


def test_what_is_left_of_a_state_comes_at_once_when_the_others_have_ended(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log), StagedTransfer(log)], log)
    state.pace = cast(Any, FixedPace(40))
    carry_out(state, PARK)
    complete(state)
    carry_out(state, RESTORE)
    log.clear()
    endings.cancel(state, state.slot(1))
    log.clear()
    copies.poll(state)
    assert log == ["prefetch"]


class FixedPace:
    """Parts of one size."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = self.room_bytes = n_bytes
        self.sent: list[int] = []

    def note_sent(self, n_bytes: int) -> None:
        self.sent.append(n_bytes)
        self.room_bytes = max(0, self.room_bytes - n_bytes)

    def begin_pass(self, has_completed: bool) -> None:
        self.room_bytes = self._n_bytes if has_completed else 0


def test_where_nobody_decodes_no_step_waits(log: list[str]) -> None:
    state = generating_state([StagedTransfer(log)], log)
    carry_out(state, PARK)
    complete(state)
    log.clear()
    assert Applier(state).carry_out(Plan((RESTORE,))) is None
    assert log == ["prefetch"]
    held(state, 0).complete()
    copies.poll(state)
    assert (log, state.slot(0).phase) == (["prefetch", "restore 0"], SlotPhase.GENERATING)


def test_a_slot_has_no_cells_while_its_state_goes_to_staging_memory(state: EngineState, log: list[str]) -> None:
    copies.poll(state)
    slot = state.slot(0)
    assert log == ["prefetch"]
    assert (slot.phase, slot.holds_cells, slot.is_promised_cells) == (SlotPhase.RESTORING, False, True)
    seen = slot_snapshot(slot, 8.0)
    assert (seen.n_cells, seen.is_preempted, seen.is_transferring) == (0, True, True)


def test_cells_scatter_and_running_come_in_one_pass(state: EngineState, log: list[str]) -> None:
    complete(state)
    slot = state.slot(0)
    assert log == ["prefetch", "restore 0"]
    assert (slot.phase, slot.holds_cells, slot.is_promised_cells) == (SlotPhase.GENERATING, True, False)
    assert notices(state) == ["preempted", "resumed"]
    assert state.counters.tally.restores_total == 1
    assert [copy.step for copy in copies_of(state)] == [CopyStep.SCATTER]
    assert not slot_snapshot(slot, 8.0).is_transferring
    assert slot.transfer.state_bytes == N_STATE_BYTES  # until nothing reads it any more
    complete(state)
    assert (copies_of(state), slot.transfer.state_bytes) == ([], 0)
    assert state.counters.tally.restores_total == 1


class AtOnceInStaging(StagedTransfer):
    """Its prefetches end when they are issued."""

    def _issue(self, what: str) -> None:
        self.in_flight = None if what == "prefetch" else what


def test_a_state_that_is_in_staging_memory_at_once_runs_at_once(log: list[str]) -> None:
    state = generating_state([AtOnceInStaging(log)], log)
    carry_out(state, PARK)
    complete(state)
    carry_out(state, RESTORE)
    assert state.slot(0).phase is SlotPhase.GENERATING


def test_promised_cells_count_as_used_for_the_planner_and_for_nobody_else(state: EngineState) -> None:
    state.runtime = cast(Any, FakeRuntime())
    view = observe(state)
    assert (state.pool.n_cells_used(), view.n_cells_used) == (0, 3)
    seen = view.slot(0)
    assert (seen.phase, seen.n_cells_owned, seen.has_transfer_in_flight) == (SlotPhase.RESTORING, 3, True)
    complete(state)
    assert n_promised_cells(state.slots) == 0


class FakeRuntime:
    n_batch, n_draft_max, speculates, shifts_context, adds_bos = 8, 0, False, True, False


def test_a_prompt_that_several_will_take_is_promised_once(log: list[str]) -> None:
    state = family(log)
    assert [slot.is_promised_cells for slot in state.slots] == [True, True]
    assert n_promised_cells(state.slots) == 2 + 1 + 1


def test_a_family_comes_in_when_the_last_of_its_states_is_there(log: list[str]) -> None:
    state = family(log)
    complete(state, 0)
    assert [slot.phase for slot in state.slots] == [SlotPhase.RESTORING] * 2
    complete(state, 1)
    assert [slot.phase for slot in state.slots] == [SlotPhase.GENERATING] * 2
    assert log[-3:] == ["restore 0", "restore 1", "share 2 of 0 with 1"]


def test_the_rest_of_a_family_ends_with_the_one_whose_state_has_the_prompt(log: list[str]) -> None:
    state = family(log)
    endings.cancel(state, state.slot(0))
    assert [slot.phase for slot in state.slots] == [SlotPhase.IDLE] * 2
    assert (n_promised_cells(state.slots), state.ram_held_bytes()) == (0, 0)


def test_the_rest_of_a_family_comes_in_without_one_that_was_cancelled(log: list[str]) -> None:
    state = family(log)
    endings.cancel(state, state.slot(1))
    assert n_promised_cells(state.slots) == 3
    complete(state, 0)
    assert [slot.phase for slot in state.slots] == [SlotPhase.GENERATING, SlotPhase.IDLE]


def family(log: list[str]) -> EngineState:
    """Two slots that share two of their three tokens, on their way to staging memory."""
    state = generating_state([StagedTransfer(log), StagedTransfer(log)], log)
    shared = SharedPrompt(2, list(state.slots), is_cut_in_park=True)
    for slot in state.slots:
        slot.shared, slot.active_job.has_siblings = shared, True
    carry_out(state, PARK)
    for slot_id in range(2):
        complete(state, slot_id)
    log.clear()
    carry_out(state, RESTORE)
    return state


def test_a_cancel_on_the_way_to_staging_memory_waits_and_leaves_nothing_promised(
    state: EngineState, log: list[str]
) -> None:
    endings.cancel(state, state.slot(0))
    slot = state.slot(0)
    assert log == ["prefetch", "wait for prefetch"]
    assert (slot.phase, slot.copy, slot.tokens) == (SlotPhase.IDLE, None, [])
    assert (n_promised_cells(state.slots), state.ram_held_bytes()) == (0, 0)


def test_a_chat_that_ends_before_its_scatter_does_waits_for_it(state: EngineState, log: list[str]) -> None:
    complete(state)
    endings.cancel(state, state.slot(0))
    assert log == ["prefetch", "restore 0", "wait for restore 0"]
    assert (state.slot(0).copy, state.slot(0).tokens) == (None, [1, 2, 3])


def test_a_shift_waits_for_a_scatter_and_not_for_what_goes_to_staging_memory(
    state: EngineState, log: list[str]
) -> None:
    state.slot(1).has_pending_shift = True
    waits.before_shift(state)
    assert log == ["prefetch"]
    complete(state)
    waits.before_shift(state)
    assert log == ["prefetch", "restore 0", "wait for restore 0"]


def test_a_chat_that_comes_back_full_is_shifted_after_its_scatter(state: EngineState, log: list[str]) -> None:
    state.runtime = cast(Any, FakeRuntime())
    complete(state)
    state.slot(0).n_ctx = 4
    context_shift.shift_full_slots(state)
    assert log == ["prefetch", "restore 0", "wait for restore 0", "shift 0"]


def test_a_restore_that_finds_no_cells_keeps_its_state_and_its_place(state: EngineState) -> None:
    held(state, 0).refuses = True
    complete(state)
    assert (state.slot(0).phase, state.slot(0).copy) == (SlotPhase.PREEMPTED, None)
    assert (n_promised_cells(state.slots), state.ram_held_bytes()) == (0, N_STATE_BYTES)
    held(state, 0).refuses = False
    carry_out(state, RESTORE)
    complete(state)
    assert state.slot(0).phase is SlotPhase.GENERATING


def test_a_restore_that_finds_no_cells_fails_where_nobody_runs(state: EngineState) -> None:
    endings.cancel(state, state.slot(1))
    held(state, 0).refuses = True
    complete(state)
    assert state.slot(0).is_idle
    assert [message.task_id for message in state.outbox if isinstance(message, Failed)] == [10]


def test_the_way_in_is_told_with_both_its_steps(state: EngineState, caplog: pytest.LogCaptureFixture) -> None:
    complete(state)
    complete(state)
    times = iter([1.0, 1.5, 2.0, 2.001, 2.001, 2.001, 2.004, 2.005, 2.006, 2.010])
    state.clock = lambda: next(times)
    tally = state.counters.tally
    before_s = tally.restore_issue_seconds_total
    carry_out(state, PARK)  # from 1.0, issued by 1.5
    with caplog.at_level(logging.INFO):
        complete(state)
        carry_out(state, RESTORE)  # from 2.001, issued behind the batch, by 2.004
        caplog.clear()
        complete(state)  # found at 2.005, issued by 2.006, runs at 2.010
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (
        "slot 0: restored task 10 (head of the line): 3 cells, 0.00 MiB, issued in 4.00 ms, completed after 9.00 ms, "
        "0.00 GB/s, in staging memory after 4.00 ms"
    )
    assert tally.restore_issue_seconds_total - before_s == pytest.approx(0.004)
    assert tally.park_issue_seconds_total >= 0.5
    scatter_s = tally.restore_scatter_seconds_total
    state.clock = lambda: 2.025
    complete(state)
    assert tally.restore_scatter_seconds_total - scatter_s == pytest.approx(0.020)


def test_only_a_transfer_that_can_prefetch_is_restored_in_two_steps(state: EngineState) -> None:
    complete(state)
    complete(state)
    slot = bring_back_without_room_in_staging(state)
    assert slot.copy is not None
    assert (slot.phase, slot.copy.step, slot.holds_cells) == (SlotPhase.RESTORING, CopyStep.RESTORE, True)


def bring_back_without_room_in_staging(state: EngineState) -> Slot:
    """Slot 1, parked and told to come back."""
    held(state, 1).prefetches = False
    carry_out(state, Park(1, Reason.STEP_SHORT))
    complete(state, 1)
    carry_out(state, Restore(1, Reason.HEAD_OF_LINE))
    return state.slot(1)


def test_a_state_waits_for_its_place_while_others_are_in_staging_memory(state: EngineState, log: list[str]) -> None:
    slot = bring_back_without_room_in_staging(state)
    complete(state)  # slot 0 comes in, and its scatter goes on
    assert [copy.step for copy in copies_of(state)] == [CopyStep.SCATTER, CopyStep.QUEUED]
    assert (slot.phase, slot.holds_cells, n_promised_cells([slot])) == (SlotPhase.RESTORING, False, 3)
    held(state, 1).prefetches = True
    complete(state)
    assert [copy.step for copy in copies_of(state)] == [CopyStep.PREFETCH]
    complete(state, 1)
    assert (slot.phase, log[-1]) == (SlotPhase.GENERATING, "restore 1")


def test_nobody_passes_one_who_waits_for_staging_memory(log: list[str]) -> None:
    now_s = iter(range(100))
    state = generating_state([StagedTransfer(log) for _ in range(3)], log)
    state.clock = lambda: float(next(now_s))
    held(state, 1).prefetches = False
    for slot_id in range(3):
        carry_out(state, Park(slot_id, Reason.STEP_SHORT))
        complete(state, slot_id)
    for slot_id in range(3):
        carry_out(state, Restore(slot_id, Reason.HEAD_OF_LINE))
    steps = [CopyStep.PREFETCH, CopyStep.QUEUED, CopyStep.QUEUED]
    assert [copy.step for copy in copies_of(state)] == steps
    held(state, 1).prefetches = True
    complete(state, 0)
    assert [copy.step for copy in copies_of(state)] == [CopyStep.SCATTER, CopyStep.PREFETCH, CopyStep.PREFETCH]


def test_a_state_that_does_not_fit_even_then_takes_its_cells_at_once(state: EngineState, log: list[str]) -> None:
    slot = bring_back_without_room_in_staging(state)
    complete(state)
    complete(state)
    assert [copy.step for copy in copies_of(state)] == [CopyStep.RESTORE]
    assert (slot.holds_cells, log[-1]) == (True, "restore 1")


def test_one_who_waits_for_its_place_and_then_copies_at_once_completes_in_the_same_pass(log: list[str]) -> None:
    """Its slot parks synchronously: there is no pass between its copy and its completion."""
    state = generating_state([StagedTransfer(log), FakeTransfer(log)], log)
    for slot_id in range(2):
        carry_out(state, Park(slot_id, Reason.STEP_SHORT))
        copies.poll(state)
    complete(state)
    for slot_id in range(2):
        carry_out(state, Restore(slot_id, Reason.HEAD_OF_LINE))
    assert [copy.step for copy in copies_of(state)] == [CopyStep.PREFETCH, CopyStep.QUEUED]
    complete(state)
    held(state, 0).complete()
    copies.poll(state)
    assert (state.slot(1).phase, copies_of(state)) == (SlotPhase.GENERATING, [])


def test_a_cancel_of_one_who_waits_for_staging_memory_leaves_nothing_promised(state: EngineState) -> None:
    slot = bring_back_without_room_in_staging(state)
    endings.cancel(state, slot)
    assert (slot.phase, slot.copy, n_promised_cells([slot])) == (SlotPhase.IDLE, None, 0)
    complete(state)
    assert state.slot(0).phase is SlotPhase.GENERATING
