"""What happens when a park or restore completes, and every wait for one. Engine thread.

A synchronous copy completes inside the call that issued it, an asynchronous one when `poll` finds it done at the top of
a pass. Where others decode, `advance_overlapped` takes the steps of a restore behind their batch. Nothing else in the
engine waits for a copy, except `endings`, which drops one.
"""

from __future__ import annotations

import logging

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import restores
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight, CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.history import EventKind

log = logging.getLogger(__name__)


def poll(state: EngineState) -> None:
    """Complete every copy that has ended. Never blocks."""
    state.pace.begin_pass(_have_completed(state))
    for slot in _in_flight(state):
        complete_if_done(state, slot)
    if not restores.others_decode(state):
        _poll_background(state)


def advance_overlapped(state: EngineState) -> None:
    """Take the steps of restores, and of copies that are no task's, that wait for a batch: it has been handed to the
    device, or there is none. Never blocks."""
    for slot in _in_flight(state):
        _advance(state, slot)
    _poll_background(state)


def are_in_flight(state: EngineState) -> bool:
    """Whether any copy has not completed."""
    return bool(_in_flight(state)) or (state.background is not None and state.background.are_under_way)


def complete_if_done(state: EngineState, slot: Slot) -> None:
    """Complete the slot's copy if it has ended, as a synchronous one has at once. Nothing if there is none."""
    if slot.copy is None:
        return
    if slot.is_promised_cells:
        if not restores.is_overlapped(state, shared_prompt.unit_of(slot)):
            _advance(state, slot)
    elif slot.transfer.is_done():
        _complete(state, slot, slot.copy)


def _advance(state: EngineState, slot: Slot) -> None:
    """The next step of a restore, if it can be taken now."""
    if slot.copy is None or not slot.is_promised_cells:
        return
    unit = shared_prompt.unit_of(slot)
    if slot.copy.step is CopyStep.QUEUED:
        restores.start(state, unit)
        for member in unit:
            if member.copy is not None and member.copy.step is not CopyStep.QUEUED:
                complete_if_done(state, member)
    elif any(member.transfer.prefetch_left_bytes for member in unit):
        restores.continue_prefetch(state, unit)
    elif all(member.transfer.is_done() for member in unit):
        restores.scatter(state, unit)


def _poll_background(state: EngineState) -> None:
    """Behind the restores: a prompt that comes from the cache does not take what they were promised."""
    if state.background is not None:
        state.background.poll()


def _have_completed(state: EngineState) -> bool:
    """Whether all that was sent to staging memory so far is there."""
    sent = [slot for slot in state.slots if slot.copy is not None and slot.copy.step is CopyStep.PREFETCH]
    return all(slot.transfer.is_done() for slot in sent)


def wait_for(state: EngineState, slot: Slot) -> None:
    """Block until the slot's copy out of its cells, or into them, has completed, or nothing needs an idle slot's cells;
    nothing if it has."""
    slot.wait_for_background_job()
    if slot.copy is not None:
        slot.transfer.wait()
        _complete(state, slot, slot.copy)


def wait_for_room(state: EngineState) -> bool:
    """Block until the first park that still holds cells has completed, or else until an idle slot's prompt was copied,
    which can be dropped then. False if there is none."""
    parks = [slot for slot in _in_flight(state) if slot.copy is not None and slot.copy.frees_on_completion]
    idle = [slot for slot in state.slots if slot.is_idle and slot.background_job is not None]
    if not parks and not idle:
        return False
    wait_for(state, min(parks or idle, key=lambda slot: slot.park_order))
    return True


def wait_before_shift(state: EngineState) -> None:
    """Where the next decode applies a shift, block until no copy touches the pool any more.

    The shift is one graph over the whole K cache, in place: a restore's rows would be read half done and written back
    stale, and a park would read through the rewrite.
    """
    if any(slot.has_pending_shift for slot in state.slots):
        for slot in _in_flight(state):
            if slot.holds_cells:
                wait_for(state, slot)
        if state.background is not None:
            state.background.wait_for_copies()


def _in_flight(state: EngineState) -> list[Slot]:
    return [slot for slot in state.slots if slot.copy is not None]


def _complete(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    slot.copy = None
    match copy.step:
        case CopyStep.PARK:
            _complete_park(state, slot, copy)
        case CopyStep.RESTORE:
            restores.resume(state, slot, copy)
        case CopyStep.SCATTER:
            state.counters.tally.restore_scatter_seconds_total += state.clock() - copy.started_s
        case CopyStep.QUEUED | CopyStep.PREFETCH:
            raise AssertionError(f"slot {slot.id} is {slot.phase.name}: it has no cells yet")


def _complete_park(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    if copy.frees_on_completion:
        state.pool.release_cells(slot)
    slot.state.move(SlotPhase.PREEMPTED)
    now_s = state.clock()
    took_s = now_s - copy.started_s
    tally = state.counters.tally
    tally.parked_bytes_total += copy.n_bytes
    tally.park_seconds_total += took_s
    tally.park_issue_seconds_total += copy.issue_s
    state.last_copy_at_s = now_s
    state.record(EventKind.PARK, slot, now_s, copy.reason.value, n_bytes=copy.n_bytes, took_s=took_s)
    log.info("slot %d: parked task %d %s", slot.id, slot.active_job.task_id, copy.in_words(took_s))
