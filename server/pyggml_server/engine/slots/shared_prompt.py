"""Cells that the answers of one `n > 1` request share: those of their prompt, which was processed once. Engine thread.

Those who share and still run are parked and restored as one, a unit: the first of them, the keeper, takes everything
along, the others only what follows the prompt. So the prompt is copied once, and is in the pool once before and after.
Nothing here decides who is parked or ended, and nothing touches cells.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyggml_server.engine.slots.slot import Slot


def leave(slot: Slot) -> None:
    """From now on the slot shares nothing."""
    shared, slot.shared = slot.shared, None
    if shared is None:
        return
    shared.holders.remove(slot)
    if len(shared.holders) == 1:
        leave(shared.holders[0])


def n_owned_cells(slot: Slot) -> int:
    """Cells that no other slot has: what comes free when this one gives its cells back."""
    if not slot.counts_cells:
        return 0
    shared = slot.shared
    is_shared = shared is not None and any(other.counts_cells for other in shared.holders if other is not slot)
    return len(slot.tokens) - (shared.n_cells if shared is not None and is_shared else 0)


def unit_of(slot: Slot) -> list[Slot]:
    """The slots that are parked and restored together with this one, the keeper first."""
    shared = slot.shared
    if shared is None or slot.job is None or not slot.job.has_siblings or not shared.is_cut_in_park:
        return [slot]
    return sorted(shared.answering(), key=lambda member: member is not shared.keeper)


def dependents(slot: Slot) -> list[Slot]:
    """Slots that cannot continue without this one's prompt, in its state or still to come."""
    if slot.children:
        return list(slot.children)
    if slot.shared is not None and slot.shared.keeper is slot and slot.state.is_preempted:
        return [other for other in slot.shared.answering() if other is not slot]
    return []


def n_promised_cells(slots: Iterable[Slot]) -> int:
    """Cells that those of these slots will take whose states are on their way to staging memory."""
    promised = [slot for slot in slots if slot.is_promised_cells]
    prompts = {id(slot.shared): slot.shared.n_cells for slot in promised if slot.shared is not None}
    n_own = sum(len(slot.tokens) - (slot.shared.n_cells if slot.shared is not None else 0) for slot in promised)
    return n_own + sum(prompts.values())
