"""States in files (rule 15): which parked state leaves host memory for one, and how it comes back.

A state goes to a file ahead of need, so that the next park finds host memory: of those who are parked the one that
comes back last. It is read again when its chat could come in. One file is written or read at a time. Answers that
share a prompt stay in host memory: what one of them holds the others cannot do without.
"""

from __future__ import annotations

from pyggml_server.planner.budget import give_backs_for_fetch, room_for_parks_bytes
from pyggml_server.planner.plan import Fetch, Forget, Reason, Spill
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.view import SlotPhase, SlotView


def spill_ahead(builder: PlanBuilder) -> None:
    """Have a state written if the next park would find no host memory."""
    ledger = builder.ledger
    if ledger.disk_limit_bytes <= 0:
        return
    room_bytes = room_for_parks_bytes(ledger)
    if room_bytes is not None and room_bytes < ledger.ahead_bytes:
        _spill(builder, Reason.NEXT_PARK)


def fetch(builder: PlanBuilder, slot: SlotView, reason: Reason) -> None:
    """Have this state read into host memory. If there is none, another one is written first; and if that cannot be,
    this one is given up, since nobody may pass who waits for it."""
    ledger = builder.ledger
    if _is_moving(builder):
        return
    give_backs = give_backs_for_fetch(ledger, slot)
    if give_backs is not None:
        builder.extend([*give_backs, Fetch(slot.slot_id, reason)])
    elif not _spill(builder, reason) and not builder.has_parks and not _may_give_memory_back(builder):
        builder.add(Forget(slot.slot_id, Reason.BUDGET_TOO_SMALL))


def disk_may_help(builder: PlanBuilder) -> bool:
    """Whether there will be more host memory once a file is written: it is too early to refuse somebody."""
    return _is_moving(builder) or _last_to_come_back(builder) is not None


def _spill(builder: PlanBuilder, reason: Reason) -> bool:
    """Order it for the parked state that comes back last. False if there is none for which a file has room; True
    also while a file is written or read."""
    if _is_moving(builder):
        return True
    slot = _last_to_come_back(builder)
    if slot is not None:
        builder.add(Spill(slot.slot_id, reason))
    return slot is not None


def _last_to_come_back(builder: PlanBuilder) -> SlotView | None:
    """Of the states in host memory for which a file has room."""
    ledger = builder.ledger
    room_bytes = ledger.disk_limit_bytes - ledger.disk_held_bytes
    for slot in [*_kept_out(builder), *reversed(ledger.line)]:
        if _may_spill(builder, slot) and slot.state_bytes <= room_bytes:
            return slot
    return None


def _kept_out(builder: PlanBuilder) -> list[SlotView]:
    """Parked by hand: nobody knows when they come back."""
    return [slot for slot in builder.ledger.slots() if slot.phase is SlotPhase.PREEMPTED and slot.is_held]


def _may_spill(builder: PlanBuilder, slot: SlotView) -> bool:
    is_in_memory = slot.phase is SlotPhase.PREEMPTED and not slot.is_on_disk and not slot.needs_refill
    if slot.was_on_disk:
        return False  # it was read in order to come in; nobody is written and read over and over
    return is_in_memory and slot.group_id is None and not slot.has_transfer_in_flight and not builder.has_parked(slot)


def _may_give_memory_back(builder: PlanBuilder) -> bool:
    """Whether a copy is under way, at whose end there may be more host memory."""
    slots = builder.ledger.slots()
    return any(slot.has_transfer_in_flight or slot.phase is SlotPhase.RESTORING for slot in slots)


def _is_moving(builder: PlanBuilder) -> bool:
    """Whether a file is written or read."""
    if builder.ledger.is_disk_busy:
        return True
    return any(s.phase is SlotPhase.PREEMPTED and s.has_transfer_in_flight for s in builder.ledger.slots())
