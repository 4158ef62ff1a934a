"""Which step of a copy may follow which: the table, and that nothing else can happen."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.preemption.copies import MOVES, IllegalCopyMoveError
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.transfer import Transfer
from pyggml_server.planner.plan import Reason

from tests.engine.fakes import FakeTransfer, generating_state

ANY_COPY = CopyInFlight(CopyStep.PARK, Reason.STEP_SHORT, n_cells=3, n_bytes=100, started_s=0.0, issue_s=0.0)
STEPS: list[CopyStep | None] = [None, *CopyStep]


def slot_in(step: CopyStep | None) -> Slot:
    slot = Slot(4, 64, cast(Transfer, None))
    slot.copy = in_step(step)
    return slot


def in_step(step: CopyStep | None) -> CopyInFlight | None:
    return None if step is None else replace(ANY_COPY, step=step)


def test_the_table_is_the_one_that_the_documents_show() -> None:
    park, queued, prefetch, restore, scatter = CopyStep
    assert {
        None: {park, queued, prefetch, restore},
        park: {None},
        queued: {queued, prefetch, restore, None},
        prefetch: {prefetch, scatter, None},
        restore: {None},
        scatter: {None},
    } == MOVES


@pytest.mark.parametrize("after", STEPS)
@pytest.mark.parametrize("before", STEPS)
def test_a_move_is_made_if_the_table_has_it_and_else_raises_and_changes_nothing(
    before: CopyStep | None, after: CopyStep | None
) -> None:
    slot = slot_in(before)
    if after in MOVES[before]:
        copies.move(slot, in_step(after))
        assert slot.copy == in_step(after)
    else:
        with pytest.raises(IllegalCopyMoveError, match="the copy of slot 4 cannot go from"):
            copies.move(slot, in_step(after))
        assert slot.copy == in_step(before)


def test_the_error_names_what_was_legal() -> None:
    with pytest.raises(IllegalCopyMoveError, match=r"from PREFETCH to RESTORE; .* PREFETCH, SCATTER, no copy"):
        copies.move(slot_in(CopyStep.PREFETCH), in_step(CopyStep.RESTORE))


def test_every_step_can_end_and_none_can_follow_itself_but_those_that_wait_or_come_in_parts() -> None:
    assert all(None in after for before, after in MOVES.items() if before is not None)
    assert {before for before, after in MOVES.items() if before in after} == {CopyStep.QUEUED, CopyStep.PREFETCH}


@pytest.mark.parametrize("step", [None, CopyStep.QUEUED, CopyStep.PREFETCH])
def test_what_has_no_cells_yet_cannot_complete(step: CopyStep | None) -> None:
    state = generating_state([FakeTransfer()])
    state.slot(0).copy = in_step(step)
    with pytest.raises(IllegalCopyMoveError, match="no copy of its cells can complete"):
        copies.complete(state, state.slot(0))
    assert state.slot(0).copy == in_step(step)
