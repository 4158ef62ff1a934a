"""How a state goes to staging memory: whole, or in parts behind the batches of others. Engine thread; never blocks.

What a batch needs from the host queues behind a state on the link. So where others decode a state goes in parts, each
behind a batch, while the device computes that (`transfers/link_pace.py` says how much).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import unit_copies
from pyggml_server.engine.slots.copy_in_flight import CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.slots.slot_states import SlotPhase
from pyggml_server.planner.view import RESIDENT_PHASES

_DECODING = RESIDENT_PHASES - {SlotPhase.RESTORING}


def is_overlapped(state: EngineState, unit: list[Slot]) -> bool:
    """Whether the steps of this restore wait until a batch of others has been handed to the device."""
    return any(slot.transfer.is_staged for slot in unit) and others_decode(state, unit)


def others_decode(state: EngineState, unit: Sequence[Slot] = ()) -> bool:
    """Whether another slot has a part in this pass's batch, unless the plan makes it wait."""
    return any(slot.phase in _DECODING and slot not in unit for slot in state.slots)


def send(state: EngineState, unit: list[Slot]) -> bool:
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
