"""Every wait for a copy, except that of a slot's end (`endings`). Engine thread; blocks."""

from __future__ import annotations

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.slots.slot import Slot


def for_slot(state: EngineState, slot: Slot) -> None:
    """Block until the slot's copy out of its cells, or into them, has completed, and no background job needs them."""
    slot.wait_for_background_job()
    if slot.copy is not None:
        slot.transfer.wait()
        copies.complete(state, slot)


def for_room(state: EngineState) -> bool:
    """Block until the first park that still holds cells has completed, or else until an idle slot's prompt was copied,
    which can be dropped then. False if there is none."""
    parks = [slot for slot in copies.in_flight(state) if slot.copy is not None and slot.copy.frees_on_completion]
    idle = [slot for slot in state.slots if slot.is_idle and slot.background_job is not None]
    if not parks and not idle:
        return False
    for_slot(state, min(parks or idle, key=lambda slot: slot.park_order))
    return True


def before_shift(state: EngineState) -> None:
    """Where the next decode applies a shift, block until no copy touches the pool any more.

    The shift is one graph over the whole K cache, in place: a restore's rows would be read half done and written back
    stale, and a park would read through the rewrite.
    """
    if any(slot.has_pending_shift for slot in state.slots):
        for slot in copies.in_flight(state):
            if slot.holds_cells:
                for_slot(state, slot)
        if state.background is not None:
            state.background.wait_for_copies()
