"""The way back into the pool: in two steps where the state goes through staging memory. Engine thread; never blocks.

First the state goes to staging memory, and the slot holds no cells: those that it will take are promised to it, so that
the planner gives them to nobody. When it is there, one pass gives the slot its cells and issues the scatter into them;
the slot runs from the next batch on, which waits for the scatter, and not for the link. A state that finds no place for
the others' waits until they have left. One that cannot go that way at all takes its cells at once, and the slot runs
when the copy has completed: what decodes meanwhile waits for all of it.

Where others decode, both steps are issued behind their batch (`landings.advance_overlapped`): the device computes then,
so issuing costs nobody anything. The first step goes in parts (`link_pace.py`), so that what the next batch sends to
the device does not queue behind a state on the link.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import unit_copies
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.history import EventKind
from pyggml_server.messages import Notice
from pyggml_server.planner.plan import Reason
from pyggml_server.planner.view import RESIDENT_PHASES

log = logging.getLogger(__name__)

# Whoever is in one of these has room in staging memory and will give it back by itself.
_IN_STAGING = frozenset({CopyStep.PREFETCH, CopyStep.SCATTER})
_DECODING = RESIDENT_PHASES - {SlotPhase.RESTORING}


def begin(state: EngineState, unit: list[Slot], reason: Reason) -> None:
    """Issue the first step for parked slots that come back together."""
    started_s = state.clock()
    sizes_bytes = [slot.transfer.state_bytes for slot in unit]
    for slot in unit:
        slot.state.move(SlotPhase.RESTORING)
    try:
        step = CopyStep.QUEUED if is_overlapped(state, unit) else _issue(state, unit, started_s)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot, n_bytes in zip(unit, sizes_bytes, strict=True):
        slot.copy = CopyInFlight(step, reason, len(slot.tokens), n_bytes, started_s, issue_s)
        slot.parked_for_request = None


def is_overlapped(state: EngineState, unit: list[Slot]) -> bool:
    """Whether the steps of this restore wait until a batch of others has been handed to the device."""
    return any(slot.transfer.is_staged for slot in unit) and others_decode(state, unit)


def others_decode(state: EngineState, unit: Sequence[Slot] = ()) -> bool:
    """Whether anybody else has a part in this pass's batch, unless the plan makes it wait."""
    return any(slot.phase in _DECODING and slot not in unit for slot in state.slots)


def start(state: EngineState, unit: list[Slot]) -> None:
    """The first step, for slots that waited for a batch of others, or for others' states to leave staging memory."""
    started_s, first = state.clock(), unit[0].copy
    assert first is not None, f"slot {unit[0].id} is {unit[0].phase.name} and was not told to come back"
    if is_overlapped(state, unit) and state.pace.room_bytes == 0:
        return
    try:
        step = _issue(state, unit, first.started_s)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        slot.copy = replace(slot.copy or first, step=step, issue_s=first.issue_s + issue_s)


def continue_prefetch(state: EngineState, unit: list[Slot]) -> None:
    """The next part of the first step: as much as others do not feel."""
    started_s = state.clock()
    try:
        _send(state, unit)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        assert slot.copy is not None, f"slot {slot.id} is {slot.phase.name} and was not told to come back"
        slot.copy = replace(slot.copy, issue_s=slot.copy.issue_s + issue_s)


def scatter(state: EngineState, unit: list[Slot]) -> None:
    """The second step: all of these states are in staging memory. The slots run from the next batch on."""
    started_s = state.clock()
    try:
        unit_copies.restore(state.pool, unit)
    except TransferRefusedError as error:
        _refuse(state, unit, error)
        return
    issue_s = state.clock() - started_s
    for slot in unit:
        prefetch, slot.copy = slot.copy, None
        assert prefetch is not None, f"slot {slot.id} is {slot.phase.name} and has nothing in staging memory"
        prefetch_s = started_s - prefetch.started_s
        whole = replace(prefetch, issue_s=prefetch.issue_s + issue_s, prefetch_s=prefetch_s)
        resume(state, slot, whole)
        slot.copy = replace(whole, step=CopyStep.SCATTER, started_s=started_s)


def resume(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    """The restored slot goes on where it was parked. Logs and counts the restore."""
    slot.state.come_back()
    slot.has_run_since_restore = False
    now_s = end_wait(state, slot)
    took_s = now_s - copy.started_s
    tally = state.counters.tally
    tally.restores_total += 1
    tally.restored_bytes_total += copy.n_bytes
    tally.restore_seconds_total += took_s
    tally.restore_issue_seconds_total += copy.issue_s
    tally.restore_prefetch_seconds_total += copy.prefetch_s
    state.last_copy_at_s = now_s
    state.record(EventKind.RESTORE, slot, now_s, copy.reason.value, n_bytes=copy.n_bytes, took_s=took_s)
    log.info("slot %d: restored task %d %s", slot.id, slot.active_job.task_id, copy.in_words(took_s))


def end_wait(state: EngineState, slot: Slot) -> float:
    """The slot is resident again. Returns the time of that; what it waited is no time of its task's."""
    job = slot.active_job
    now_s = state.clock()
    waited_s = now_s - slot.parked_at_s
    job.parked_s += waited_s
    job.task.add_pause(int(waited_s * 1e6))
    slot.resident_since_s = now_s
    slot.parked_for_request = None
    state.outbox.append(Notice(job.task_id, "resumed"))
    return now_s


def _issue(state: EngineState, unit: list[Slot], ordered_s: float) -> CopyStep:
    """Nobody passes who was ordered before and waits for its place. Raises TransferRefusedError."""
    others = [slot.copy for slot in state.slots if slot not in unit and slot.copy is not None]
    if any(copy.step is CopyStep.QUEUED and copy.started_s < ordered_s for copy in others):
        return CopyStep.QUEUED
    if _send(state, unit):
        return CopyStep.PREFETCH
    if any(copy.step in _IN_STAGING for copy in others):
        return CopyStep.QUEUED
    unit_copies.restore(state.pool, unit)
    return CopyStep.RESTORE


def _send(state: EngineState, unit: list[Slot]) -> bool:
    """Issue the unit's way to staging memory, or the next part of it. False if it cannot go there.

    Raises TransferRefusedError.
    """
    if not is_overlapped(state, unit):
        return unit_copies.prefetch(unit)
    room_bytes = state.pace.room_bytes
    if room_bytes == 0:
        return True
    n_left_bytes = _left_bytes(unit)
    is_issued = unit_copies.prefetch(unit, room_bytes)
    if is_issued:
        n_after_bytes = sum(slot.transfer.prefetch_left_bytes for slot in unit)
        state.pace.note_sent(n_left_bytes - n_after_bytes)
    return is_issued


def _left_bytes(unit: list[Slot]) -> int:
    """What of the unit's states is not on its way to staging memory yet: all of it before the first part."""
    is_begun = any(slot.copy is not None and slot.copy.step is CopyStep.PREFETCH for slot in unit)
    return sum(slot.transfer.prefetch_left_bytes if is_begun else slot.transfer.state_bytes for slot in unit)


def _refuse(state: EngineState, unit: list[Slot], error: TransferRefusedError) -> None:
    """They keep their states and their places in line, unless nobody is left who could make room."""
    for slot in unit:
        slot.copy = None
        slot.state.move(SlotPhase.PREEMPTED)
        state.pool.release_cells(slot)
    log.warning("slot %d: restore refused: %s", unit[0].id, error)
    if not any(other.phase in RESIDENT_PHASES for other in state.slots):
        endings.fail_for_room(state, unit[0])  # else it would be tried again for ever
