"""What the planner's orders do to slots where copies are refused: with a transfer and a pool that tests control."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyggml_server.engine.apply import Applier
from pyggml_server.engine.slot import Job, Slot
from pyggml_server.engine.slot_states import SlotPhase
from pyggml_server.engine.state import EngineState
from pyggml_server.engine.transfer import TransferRefusedError
from pyggml_server.messages import Failed, Notice
from pyggml_server.native.task import Task, TaskStats
from pyggml_server.planner.plan import Park, Plan, Reason, Restore
from pyggml_server.planner.policy import Policy


class FakeTask:
    """A task of which only its end matters."""

    params_json = b"{}"
    n_predict = -1

    def stats(self) -> TaskStats:
        return TaskStats(0, 0, 0, 0, 0, 0, has_next_token=True, has_new_line=False)

    def add_pause(self, pause_us: int) -> None:
        assert pause_us >= 0

    def close(self) -> None:
        return None


class FakeTransfer:
    """Copies nothing; refuses what it is told to."""

    frees_on_landing = False

    def __init__(self) -> None:
        self.buffer_bytes = 0
        self.refuses = False

    @property
    def state_bytes(self) -> int:
        return self.buffer_bytes

    def save(self, seq_id: int) -> None:
        if self.refuses:
            raise TransferRefusedError(f"no memory for {seq_id}")
        self.buffer_bytes = 100

    def restore(self, seq_id: int) -> None:
        if self.refuses:
            raise TransferRefusedError(f"no cells for {seq_id}")
        self.buffer_bytes = 0

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        return None

    def drop(self) -> None:
        self.buffer_bytes = 0


class FakePool:
    """Cells as the slots' token lists have them."""

    n_cells = 64

    def release_cells(self, slot: Slot) -> None:
        assert slot.id >= 0

    def clear(self, slot: Slot) -> None:
        slot.tokens.clear()


@pytest.fixture
def state() -> EngineState:
    """Two generating slots."""
    slots = []
    for slot_id in range(2):
        slot = Slot(slot_id, 64, FakeTransfer(), tokens=[1, 2, 3])
        slot.job = Job(slot_id + 10, cast(Task, FakeTask()), order=slot_id, prompt=[1, 2])
        for phase in (SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT, SlotPhase.DONE_PROMPT, SlotPhase.GENERATING):
            slot.state.move(phase)
        slots.append(slot)
    return EngineState(cast(Any, None), cast(Any, FakePool()), slots, Policy(), ram_limit_bytes=1000)


def refuse(state: EngineState, slot_id: int, refuses: bool = True) -> None:
    cast(FakeTransfer, state.slot(slot_id).transfer).refuses = refuses


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
