"""What happens when a park or restore lands, and every wait for one. Engine thread.

A synchronous copy lands inside the call that issued it; an asynchronous one when `poll` finds it done at the top of a
pass. The waits here are the only ones: nothing else in the engine blocks on a copy, but `endings`, which drops one.
"""

from __future__ import annotations

import logging

from pyggml_server.engine.copy_in_flight import CopyInFlight
from pyggml_server.engine.slot import Slot
from pyggml_server.engine.slot_states import SlotPhase
from pyggml_server.engine.state import EngineState
from pyggml_server.history import EventKind
from pyggml_server.messages import Notice

log = logging.getLogger(__name__)


def poll(state: EngineState) -> None:
    """Land every copy that has ended. Never blocks."""
    if state.side is not None:
        state.side.poll()
    for slot in _in_flight(state):
        if slot.transfer.is_done():
            _land(state, slot)


def are_in_flight(state: EngineState) -> bool:
    """Whether any copy has not landed."""
    return bool(_in_flight(state)) or (state.side is not None and state.side.are_under_way)


def land_if_done(state: EngineState, slot: Slot) -> None:
    """Land the slot's copy if it has ended already, as a synchronous one has."""
    if slot.transfer.is_done():
        _land(state, slot)


def wait_for(state: EngineState, slot: Slot) -> None:
    """Block until the slot's copy has landed, or nothing needs an idle slot's cells; nothing if it has."""
    if state.side is not None:
        state.side.wait_for_slot(slot)
    if slot.copy is not None:
        slot.transfer.wait()
        _land(state, slot)


def wait_for_room(state: EngineState) -> bool:
    """Block until the first park has landed whose cells are still held, or else an idle slot's prompt was copied, which
    can be dropped then. False if there is none."""
    parks = [
        slot
        for slot in _in_flight(state)
        if slot.phase is SlotPhase.PREEMPTING and slot.copy is not None and slot.copy.frees_on_landing
    ]
    idle = [slot for slot in state.slots if slot.is_idle and slot.side_job is not None]
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
        if state.side is not None:
            state.side.wait_for_copies()


def _in_flight(state: EngineState) -> list[Slot]:
    return [slot for slot in state.slots if slot.copy is not None]


def _land(state: EngineState, slot: Slot) -> None:
    copy, slot.copy = slot.copy, None
    assert copy is not None, f"slot {slot.id} is {slot.phase.name} and has no copy to land"
    if slot.phase is SlotPhase.PREEMPTING:
        _land_park(state, slot, copy)
    else:
        _land_restore(state, slot, copy)


def _land_park(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    if copy.frees_on_landing:
        state.pool.release_cells(slot)
    slot.state.move(SlotPhase.PREEMPTED)
    tally = state.counters.tally
    now_s = state.clock()
    tally.parked_bytes_total += copy.n_bytes
    tally.park_seconds_total += now_s - copy.started_s
    _tell_landing(state, slot, copy, EventKind.PARK, now_s)


def _land_restore(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
    slot.state.come_back()
    slot.has_run_since_restore = False
    tally = state.counters.tally
    now_s = end_wait(state, slot)
    tally.restores_total += 1
    tally.restored_bytes_total += copy.n_bytes
    tally.restore_seconds_total += now_s - copy.started_s
    _tell_landing(state, slot, copy, EventKind.RESTORE, now_s)


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


def _tell_landing(state: EngineState, slot: Slot, copy: CopyInFlight, kind: EventKind, now_s: float) -> None:
    took_s = now_s - copy.started_s
    state.last_copy_at_s = now_s
    state.recorder.note(kind, slot, now_s, copy.reason.value, n_bytes=copy.n_bytes, took_s=took_s)
    log.info(
        "slot %d: %s task %d (%s): %d cells, %.2f MiB, issued in %.2f ms, landed after %.2f ms, %.2f GB/s",
        slot.id,
        "parked" if kind is EventKind.PARK else "restored",
        slot.active_job.task_id,
        copy.reason.value,
        copy.n_cells,
        copy.n_bytes / 1024**2,
        (copy.issued_s - copy.started_s) * 1e3,
        took_s * 1e3,
        copy.n_bytes / took_s / 1e9 if took_s > 0 else 0.0,
    )
