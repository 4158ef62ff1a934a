"""The copies of parks and restores, each from its issue to its completion: one machine over one table. Engine thread.

`Slot.copy` says which step a copy is in, and only this file changes it, but for the end of a slot, which drops it.

    no copy -> PARK -> no copy                        the slot is PREEMPTED from the completion on
    no copy -> PREFETCH -> SCATTER -> no copy         by way of staging memory: the slot runs from SCATTER on
    no copy -> RESTORE -> no copy                     straight into cells: the slot runs from the completion on

QUEUED comes first where a restore has to wait: for a batch of others, behind which issuing is free, or for others'
states to leave staging memory. While QUEUED or in PREFETCH a slot holds no cells. Those that it will take are
promised to it, and the planner gives them to no other. A step that is refused leaves the slot PREEMPTED.

A synchronous copy has completed when the call that issued it returns, an asynchronous one when `poll` finds it done at
the top of a pass. Where others decode, `advance_overlapped` takes the steps of restores behind their batch. Nothing
here blocks: `waits.py` has every wait.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copy_reports, disk_states, prefetch, unit_copies
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.planner.plan import Reason
from pyggml_server.planner.view import RESIDENT_PHASES

log = logging.getLogger(__name__)

# From each step to those that may follow it. None: no copy.
MOVES: Mapping[CopyStep | None, frozenset[CopyStep | None]] = {
    None: frozenset({CopyStep.PARK, CopyStep.QUEUED, CopyStep.PREFETCH, CopyStep.RESTORE}),
    CopyStep.PARK: frozenset({None}),
    CopyStep.QUEUED: frozenset({CopyStep.QUEUED, CopyStep.PREFETCH, CopyStep.RESTORE, None}),
    CopyStep.PREFETCH: frozenset({CopyStep.PREFETCH, CopyStep.SCATTER, None}),
    CopyStep.RESTORE: frozenset({None}),
    CopyStep.SCATTER: frozenset({None}),
}


class IllegalCopyMoveError(RuntimeError):
    """A copy was told to make a move that the table does not have: a bug in the engine, never a user's error."""


def move(slot: Slot, copy: CopyInFlight | None) -> None:
    """Put the slot's copy into its next step. Raises IllegalCopyMoveError, and changes nothing, if that is illegal."""
    before, after = (None if each is None else each.step for each in (slot.copy, copy))
    if after not in MOVES[before]:
        legal = ", ".join(sorted(_name(step) for step in MOVES[before]))
        way = f"from {_name(before)} to {_name(after)}"
        raise IllegalCopyMoveError(f"the copy of slot {slot.id} cannot go {way}; from there it may go to {legal}")
    slot.copy = copy


def _name(step: CopyStep | None) -> str:
    return "no copy" if step is None else step.name


# -- what the planner orders ------------------------------------------------------------------------------------------


def begin_park(state: EngineState, unit: list[Slot], reason: Reason) -> float:
    """Issue the copies out of slots that are parked together. Returns when that began.

    Raises TransferRefusedError; no slot has changed then.
    """
    started_s = state.clock()
    for slot in unit:
        slot.state.move(SlotPhase.PREEMPTING)
    try:
        unit_copies.save(state.pool, unit, may_block=reason is Reason.STEP_SHORT)
    except TransferRefusedError:
        for slot in unit:
            slot.state.come_back()
        raise
    issue_s = state.clock() - started_s
    for slot in unit:
        copy = _issued(slot, reason, started_s, issue_s)
        move(slot, copy)
        if not copy.frees_on_completion:
            state.pool.release_cells(slot)
    return started_s


def begin_restore(state: EngineState, unit: list[Slot], reason: Reason) -> None:
    """Take the first step for parked slots that come back together."""
    started_s = state.clock()
    sizes_bytes = [slot.transfer.state_bytes for slot in unit]
    for slot in unit:
        slot.state.move(SlotPhase.RESTORING)
    try:
        step = CopyStep.QUEUED if prefetch.is_overlapped(state, unit) else _issue(state, unit, started_s)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot, n_bytes in zip(unit, sizes_bytes, strict=True):
        move(slot, CopyInFlight(step, reason, len(slot.tokens), n_bytes, started_s, issue_s))
        slot.active_job.parked_for_request = None


# -- pass by pass -----------------------------------------------------------------------------------------------------


def poll(state: EngineState) -> None:
    """At the top of a pass: complete every copy that has ended. Never blocks."""
    disk_states.poll(state)
    state.pace.begin_pass(_prefetches_have_completed(state))
    for slot in in_flight(state):
        complete_if_done(state, slot)
    if not prefetch.others_decode(state):
        _poll_background(state)


def advance_overlapped(state: EngineState) -> None:
    """A batch has been handed to the device, or there is none: take the steps that waited for that. Never blocks."""
    for slot in in_flight(state):
        _advance(state, slot)
    _poll_background(state)


def in_flight(state: EngineState) -> list[Slot]:
    """Slots whose copy has not completed."""
    return [slot for slot in state.slots if slot.copy is not None]


def are_under_way(state: EngineState) -> bool:
    """Whether any copy has not completed, those of background jobs and of files included."""
    is_any_in_background = state.background is not None and state.background.are_under_way
    return bool(in_flight(state)) or is_any_in_background or disk_states.are_under_way(state)


def complete_if_done(state: EngineState, slot: Slot) -> None:
    """Complete the slot's copy if it has ended, as a synchronous one has at once. Nothing if there is none."""
    if slot.copy is None:
        return
    if slot.is_promised_cells:
        if not prefetch.is_overlapped(state, shared_prompt.unit_of(slot)):
            _advance(state, slot)
    elif slot.transfer.is_done():
        complete(state, slot)


def complete(state: EngineState, slot: Slot) -> None:
    """The slot's copy out of its cells, or into them, has ended."""
    copy = slot.copy
    if copy is None or copy.step in (CopyStep.QUEUED, CopyStep.PREFETCH):
        raise IllegalCopyMoveError(f"slot {slot.id} is {slot.phase.name}: no copy of its cells can complete")
    move(slot, None)
    if copy.step is CopyStep.PARK:
        _complete_park(state, slot, copy)
    elif copy.step is CopyStep.RESTORE:
        resume(state, slot, copy)
    else:
        copy_reports.note_scattered(state, copy)


def _poll_background(state: EngineState) -> None:
    """Behind the restores: a prompt that comes from the cache does not take what they were promised."""
    if state.background is not None:
        state.background.poll()


def _prefetches_have_completed(state: EngineState) -> bool:
    """Whether all that was sent to staging memory so far is there."""
    sent = [slot for slot in state.slots if slot.copy is not None and slot.copy.step is CopyStep.PREFETCH]
    return all(slot.transfer.is_done() for slot in sent)


# -- the steps --------------------------------------------------------------------------------------------------------


def _advance(state: EngineState, slot: Slot) -> None:
    """The next step of a restore that has no cells yet, if it can be taken now."""
    if slot.copy is None or not slot.is_promised_cells:
        return
    unit = shared_prompt.unit_of(slot)
    if slot.copy.step is CopyStep.QUEUED:
        _start(state, unit)
        for member in unit:
            if member.copy is not None and member.copy.step is not CopyStep.QUEUED:
                complete_if_done(state, member)
    elif any(member.transfer.prefetch_left_bytes for member in unit):
        _continue_prefetch(state, unit)
    elif all(member.transfer.is_done() for member in unit):
        _scatter(state, unit)


def _start(state: EngineState, unit: list[Slot]) -> None:
    """QUEUED -> PREFETCH or RESTORE, or on in line."""
    started_s, first = state.clock(), _copy_of(unit[0])
    if prefetch.is_overlapped(state, unit) and state.pace.room_bytes == 0:
        return
    try:
        step = _issue(state, unit, first.started_s)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        move(slot, replace(slot.copy or first, step=step, issue_s=first.issue_s + issue_s))


def _continue_prefetch(state: EngineState, unit: list[Slot]) -> None:
    """The next part on the way to staging memory: as much as others do not feel."""
    started_s = state.clock()
    try:
        prefetch.send(state, unit)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        move(slot, replace(_copy_of(slot), issue_s=_copy_of(slot).issue_s + issue_s))


def _scatter(state: EngineState, unit: list[Slot]) -> None:
    """PREFETCH -> SCATTER: all of these states are in staging memory. The slots run from the next batch on, which waits
    for the scatter on the device."""
    started_s = state.clock()
    try:
        unit_copies.restore(state.pool, unit)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        sent = _copy_of(slot)
        whole = replace(sent, issue_s=sent.issue_s + issue_s, prefetch_s=started_s - sent.started_s)
        move(slot, replace(whole, step=CopyStep.SCATTER, started_s=started_s))
        resume(state, slot, whole)


def _issue(state: EngineState, unit: list[Slot], ordered_s: float) -> CopyStep:
    """Issue what can be issued of a restore now. It never overtakes one that was ordered before it and is QUEUED.

    Raises TransferRefusedError.
    """
    others = [slot.copy for slot in state.slots if slot not in unit and slot.copy is not None]
    if any(copy.step is CopyStep.QUEUED and copy.started_s < ordered_s for copy in others):
        return CopyStep.QUEUED
    if prefetch.send(state, unit):
        return CopyStep.PREFETCH
    if any(copy.step in (CopyStep.PREFETCH, CopyStep.SCATTER) for copy in others):
        return CopyStep.QUEUED  # they have room in staging memory, and give it back by themselves
    unit_copies.restore(state.pool, unit)
    return CopyStep.RESTORE


def resume(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    """The restored slot runs again where it was parked."""
    slot.state.come_back()
    slot.active_job.has_run_since_restore = False
    copy_reports.note_restored(state, slot, copy)


def _issued(slot: Slot, reason: Reason, started_s: float, issue_s: float) -> CopyInFlight:
    n_bytes, frees_on_completion = slot.transfer.state_bytes, slot.transfer.frees_on_completion
    return CopyInFlight(CopyStep.PARK, reason, len(slot.tokens), n_bytes, started_s, issue_s, frees_on_completion)


def _complete_park(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    if copy.frees_on_completion:
        state.pool.release_cells(slot)
    slot.state.move(SlotPhase.PREEMPTED)
    copy_reports.note_parked(state, slot, copy)


def _refuse(state: EngineState, unit: list[Slot], error: TransferRefusedError) -> None:
    """They keep their states and their places in line. If no slot is left that could make room, the first one fails."""
    for slot in unit:
        if slot.copy is not None:
            move(slot, None)
        slot.state.move(SlotPhase.PREEMPTED)
        state.pool.release_cells(slot)
    log.warning("slot %d: restore refused: %s", unit[0].id, error)
    if not any(other.phase in RESIDENT_PHASES for other in state.slots):
        endings.fail_for_room(state, unit[0])  # else it would be tried again in every pass


def _copy_of(slot: Slot) -> CopyInFlight:
    if slot.copy is None:
        raise IllegalCopyMoveError(f"slot {slot.id} is {slot.phase.name} and has no copy")
    return slot.copy
