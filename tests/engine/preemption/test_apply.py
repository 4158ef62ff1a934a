"""What the planner's orders do to slots where copies are refused: with a transfer and a pool that tests control."""

from __future__ import annotations

import pytest
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.lifecycle.snapshot import slot_snapshot
from pyggml_server.engine.preemption.apply import Applier
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.history import EventKind
from pyggml_server.messages import Failed, Notice
from pyggml_server.planner.plan import Park, Plan, Reason, Restore

from tests.engine.fakes import FakeTransfer, generating_state, held


@pytest.fixture
def state() -> EngineState:
    """Two generating slots whose copies complete at once."""
    return generating_state([FakeTransfer(), FakeTransfer()])


def refuse(state: EngineState, slot_id: int, refuses: bool = True) -> None:
    held(state, slot_id).refuses = refuses


def carry_out(state: EngineState, *actions: Park | Restore) -> int | None:
    return Applier(state).carry_out(Plan(actions))


PARK = Park(0, Reason.STEP_SHORT)
RESTORE = Restore(0, Reason.HEAD_OF_LINE)


def test_a_park_and_a_restore_bring_a_slot_back_where_it_was(state: EngineState) -> None:
    assert carry_out(state, PARK, RESTORE) is None
    assert state.slot(0).phase is SlotPhase.GENERATING
    assert [m.text for m in state.outbox if isinstance(m, Notice)] == ["preempted", "resumed"]


def test_a_refused_park_stops_the_plan_and_changes_nothing(state: EngineState) -> None:
    refuse(state, 0)
    assert carry_out(state, PARK, Park(1, Reason.STEP_SHORT)) == 0
    assert [slot.phase for slot in state.slots] == [SlotPhase.GENERATING] * 2
    assert state.counters.tally.preempt_refusals_total == 1


def test_a_refused_restore_keeps_its_state_and_its_place_while_others_run(state: EngineState) -> None:
    carry_out(state, PARK)
    refuse(state, 0)
    assert carry_out(state, RESTORE) is None
    assert state.slot(0).phase is SlotPhase.PREEMPTED
    assert state.ram_held_bytes() == 100
    refuse(state, 0, False)
    carry_out(state, RESTORE)
    assert state.slot(0).phase is SlotPhase.GENERATING


def test_a_refused_restore_with_nobody_resident_fails_instead_of_being_tried_for_ever(state: EngineState) -> None:
    carry_out(state, PARK, Park(1, Reason.STEP_SHORT))
    refuse(state, 0)
    carry_out(state, RESTORE)
    assert state.slot(0).is_idle
    failed = [m for m in state.outbox if isinstance(m, Failed)]
    assert [m.task_id for m in failed] == [10]
    assert b"Context size has been exceeded." in failed[0].error
    assert state.slot(1).phase is SlotPhase.PREEMPTED


def test_parks_restores_refusals_and_failures_are_told_to_the_page_in_order(state: EngineState) -> None:
    carry_out(state, PARK, RESTORE)
    refuse(state, 0)
    carry_out(state, PARK)
    endings.fail(state, state.slot(0), "too bad")
    endings.cancel(state, state.slot(1))
    events = state.recorder.history.events
    assert [(event.kind, event.slot_id, event.task_id, event.n_bytes) for event in events] == [
        (EventKind.PARK, 0, 10, 100),
        (EventKind.RESTORE, 0, 10, 100),
        (EventKind.REFUSAL, 0, 10, 0),
        (EventKind.END, 0, 10, 0),
        (EventKind.END, 1, 11, 0),
    ]
    reasons = ["no room for the next step", "head of the line", "no memory for 0", "too bad", "cancelled"]
    assert [event.reason for event in events] == reasons


def test_a_copy_marks_the_gaps_that_it_falls_into(state: EngineState) -> None:
    state.clock = lambda: 7.0
    carry_out(state, PARK)
    assert state.last_copy_at_s == 7.0
    state.clock = lambda: 9.0
    carry_out(state, RESTORE)
    assert state.last_copy_at_s == 9.0


def test_a_slot_says_since_when_it_is_parked_and_only_then(state: EngineState) -> None:
    state.clock = lambda: 7.0
    carry_out(state, PARK)
    assert slot_snapshot(state.slot(0), 8.0).parked_at_s == 7.0
    assert slot_snapshot(state.slot(1), 8.0).parked_at_s is None
    carry_out(state, RESTORE)
    assert slot_snapshot(state.slot(0), 8.0).parked_at_s is None


def test_a_slot_whose_chat_was_cancelled_while_parked_is_not_parked_any_more(state: EngineState) -> None:
    carry_out(state, PARK)
    endings.cancel(state, state.slot(0))
    assert slot_snapshot(state.slot(0), 8.0).parked_at_s is None
