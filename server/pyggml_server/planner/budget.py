"""Host memory (rule 8): whether a park fits `--preempt-ram`, and which idle buffers go. Orders give-backs only."""

from __future__ import annotations

from collections.abc import Collection

from pyggml_server.planner.effects import charge_bytes
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import GiveBackBuffer, Reason
from pyggml_server.planner.units import Unit
from pyggml_server.planner.view import SlotPhase, SlotView

_HOLDS_STATE = frozenset({SlotPhase.PREEMPTING, SlotPhase.PREEMPTED, SlotPhase.RESTORING})


def give_backs_for_park(ledger: Ledger, unit: Unit) -> list[GiveBackBuffer] | None:
    """Idle buffers to give back so that this unit's park fits the budget; None when it does not fit even so.

    What the unit holds is read from the ledger, not from the unit: a park ordered before may have taken its buffer.
    """
    n_more_bytes = sum(charge_bytes(ledger.slot(slot.slot_id)) for slot in unit)
    return _give_backs(ledger, n_more_bytes, {slot.slot_id for slot in unit}, Reason.BUDGET_NEEDED)


def give_backs_for_fetch(ledger: Ledger, slot: SlotView) -> list[GiveBackBuffer] | None:
    """The same for a state that comes back from a file."""
    return _give_backs(ledger, slot.state_bytes, {slot.slot_id}, Reason.BUDGET_NEEDED)


def room_for_parks_bytes(ledger: Ledger) -> int | None:
    """Host memory for states of slots that are parked now, once every idle buffer is given back; None without limit."""
    if ledger.ram_limit_bytes is None:
        return None
    n_idle_bytes = 0
    for slot in ledger.slots():
        if slot.buffer_bytes and _is_idle(slot):
            n_idle_bytes += slot.buffer_bytes
    return ledger.ram_limit_bytes - ledger.ram_held_bytes + n_idle_bytes


def give_backs_when_over(ledger: Ledger) -> list[GiveBackBuffer]:
    """Idle buffers to give back while more than the budget is held (a restored slot's, kept for its next park)."""
    if ledger.ram_limit_bytes is None or ledger.ram_held_bytes <= ledger.ram_limit_bytes:
        return []
    enough = _give_backs(ledger, 0, (), Reason.OVER_BUDGET)
    return enough if enough is not None else [GiveBackBuffer(s.slot_id, Reason.OVER_BUDGET) for s in _idle(ledger, ())]


def _give_backs(
    ledger: Ledger, n_more_bytes: int, keep: Collection[int], reason: Reason
) -> list[GiveBackBuffer] | None:
    if ledger.ram_limit_bytes is None:
        return []
    n_over_bytes = ledger.ram_held_bytes + n_more_bytes - ledger.ram_limit_bytes
    chosen: list[GiveBackBuffer] = []
    for slot in _idle(ledger, keep):
        if n_over_bytes <= 0:
            break
        chosen.append(GiveBackBuffer(slot.slot_id, reason))
        n_over_bytes -= slot.buffer_bytes
    return chosen if n_over_bytes <= 0 else None


def _idle(ledger: Ledger, keep: Collection[int]) -> list[SlotView]:
    """Buffers that hold no state and no copy, largest first."""
    idle = (slot for slot in ledger.slots() if slot.buffer_bytes and _is_idle(slot) and slot.slot_id not in keep)
    return sorted(idle, key=lambda slot: (-slot.buffer_bytes, slot.slot_id))


def _is_idle(slot: SlotView) -> bool:
    return (slot.phase not in _HOLDS_STATE or slot.needs_refill) and not slot.has_transfer_in_flight
