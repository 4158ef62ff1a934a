"""The slot life cycle, read from its table: needs no compiled module."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from pyggml_server.engine.slots import slot_states
from pyggml_server.engine.slots.slot_states import MOVES, IllegalMoveError, SlotPhase, SlotState

WAY_TO = {
    SlotPhase.IDLE: [],
    SlotPhase.WAIT_OTHER: [SlotPhase.WAIT_OTHER],
    SlotPhase.STARTED: [SlotPhase.STARTED],
    SlotPhase.PROCESSING_PROMPT: [SlotPhase.STARTED, SlotPhase.PROCESSING_PROMPT],
    SlotPhase.DONE_PROMPT: [SlotPhase.WAIT_OTHER, SlotPhase.DONE_PROMPT],
    SlotPhase.GENERATING: [SlotPhase.WAIT_OTHER, SlotPhase.DONE_PROMPT, SlotPhase.GENERATING],
}
WAY_TO[SlotPhase.PREEMPTING] = [*WAY_TO[SlotPhase.GENERATING], SlotPhase.PREEMPTING]
WAY_TO[SlotPhase.PREEMPTED] = [*WAY_TO[SlotPhase.PREEMPTING], SlotPhase.PREEMPTED]
WAY_TO[SlotPhase.RESTORING] = [*WAY_TO[SlotPhase.PREEMPTED], SlotPhase.RESTORING]


def slot_in(phase: SlotPhase) -> SlotState:
    state = SlotState(slot_id=7)
    for step in WAY_TO[phase]:
        state.move(step)
    assert state.phase is phase
    return state


def test_the_table_names_every_state_once() -> None:
    assert set(MOVES) == set(SlotPhase)


@pytest.mark.parametrize(("start", "end"), list(itertools.product(SlotPhase, SlotPhase)))
def test_a_move_is_made_when_the_table_has_it_and_refused_otherwise(start: SlotPhase, end: SlotPhase) -> None:
    state = slot_in(start)
    came_from = SlotPhase.GENERATING
    is_copying = start in (SlotPhase.PREEMPTING, SlotPhase.RESTORING)
    returns_elsewhere = is_copying and end is SlotPhase.PROCESSING_PROMPT and came_from is not end
    if end in MOVES[start] and not returns_elsewhere:
        state.move(end)
        assert state.phase is end
    else:
        with pytest.raises(IllegalMoveError, match="slot 7"):
            state.move(end)
        assert state.phase is start


@pytest.mark.parametrize("former", [SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING])
def test_a_restored_slot_comes_back_to_where_it_was_parked_from(former: SlotPhase) -> None:
    state = slot_in(former)
    for step in (SlotPhase.PREEMPTING, SlotPhase.PREEMPTED, SlotPhase.RESTORING):
        state.move(step)
        assert state.former is former
    state.come_back()
    assert (state.phase, state.former) == (former, None)


@pytest.mark.parametrize("former", [SlotPhase.PROCESSING_PROMPT, SlotPhase.GENERATING])
def test_a_park_that_fails_leaves_the_slot_where_it_was(former: SlotPhase) -> None:
    state = slot_in(former)
    state.move(SlotPhase.PREEMPTING)
    state.come_back()
    assert (state.phase, state.former) == (former, None)


def test_a_restore_that_fails_keeps_the_slot_parked_and_its_way_back() -> None:
    state = slot_in(SlotPhase.RESTORING)
    state.move(SlotPhase.PREEMPTED)
    assert (state.phase, state.former) == (SlotPhase.PREEMPTED, SlotPhase.GENERATING)


def test_a_slot_that_was_not_parked_has_nowhere_to_come_back_to() -> None:
    with pytest.raises(IllegalMoveError, match="nowhere to come back to"):
        slot_in(SlotPhase.GENERATING).come_back()


@pytest.mark.parametrize("phase", [phase for phase in SlotPhase if phase is not SlotPhase.IDLE])
def test_a_slot_can_end_in_any_state_and_forgets_its_way_back(phase: SlotPhase) -> None:
    state = slot_in(phase)
    assert state.is_processing
    state.move(SlotPhase.IDLE)
    assert (state.phase, state.former, state.is_processing) == (SlotPhase.IDLE, None, False)


def test_no_other_server_module_sets_a_phase() -> None:
    server = Path(slot_states.__file__).parents[1]
    setters = {
        path.name
        for path in server.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in {"_phase", "_former"}
    }
    assert setters == {"slot_states.py"}
