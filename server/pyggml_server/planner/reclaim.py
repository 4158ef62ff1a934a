"""Cells that can be had without preempting anybody: started slots' leftovers, idle slots' cached prompts (rule 2)."""

from __future__ import annotations

from pyggml_server.planner.effects import n_trimmed_cells
from pyggml_server.planner.plan import DropIdlePrompt, Reason, TrimStarted
from pyggml_server.planner.view import SlotPhase, SlotView, View


def reclaim_actions(view: View, n_short: int, reason: Reason) -> list[TrimStarted | DropIdlePrompt]:
    """Free at least `n_short` cells, or all there are.

    Leftovers first, since they are of no more use to anybody; then cached prompts, the one unused for longest first.
    """
    chosen: list[TrimStarted | DropIdlePrompt] = []
    for slot in view.started():
        if n_short <= 0:
            break
        if n_freed := n_trimmed_cells(slot, slot.n_kept_cells):
            chosen.append(TrimStarted(slot.slot_id, reason, slot.n_kept_cells))
            n_short -= n_freed
    for slot in _cached(view):
        if n_short <= 0:
            break
        chosen.append(DropIdlePrompt(slot.slot_id, reason))
        n_short -= slot.n_cells_owned
    return chosen


def n_reclaimable_cells(view: View) -> int:
    """All the cells that `reclaim_actions` could free."""
    n_leftover = sum(n_trimmed_cells(slot, slot.n_kept_cells) for slot in view.started())
    return n_leftover + sum(slot.n_cells_owned for slot in _cached(view))


def n_reclaimable_prefix_cells(view: View, keep_slot: int | None = None) -> int:
    """All the cells that `reclaim_prefixes` could free once `reclaim_actions` has freed its own."""
    waiting = (slot for slot in view.started() if slot.slot_id != keep_slot)
    return sum(n_trimmed_cells(slot, 0) - n_trimmed_cells(slot, slot.n_kept_cells) for slot in waiting)


def reclaim_prefixes(view: View, n_short: int, reason: Reason, keep_slot: int | None = None) -> list[TrimStarted]:
    """Make waiting prompts give up even the prefix that they would have reused, the latest first.

    The last thing before somebody fails: a prompt that waits must never stop those for whom it waits.
    """
    chosen: list[TrimStarted] = []
    for slot in reversed(view.started()):
        if n_short <= 0:
            break
        if slot.slot_id != keep_slot and (n_freed := n_trimmed_cells(slot, 0)):
            chosen.append(TrimStarted(slot.slot_id, reason, 0))
            n_short -= n_freed
    return chosen


def _cached(view: View) -> list[SlotView]:
    cached = (
        slot
        for slot in view.slots
        if slot.phase is SlotPhase.IDLE and slot.n_cells_owned and not slot.has_transfer_in_flight
    )
    return sorted(cached, key=lambda slot: (slot.last_used_s, slot.slot_id))
