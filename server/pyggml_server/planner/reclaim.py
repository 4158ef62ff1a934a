"""Cells that can be had without preempting anybody: started slots' leftovers, idle slots' cached prompts (rule 2)."""

from __future__ import annotations

from pyggml_server.planner.ledger import Ledger, n_trimmed_cells
from pyggml_server.planner.plan import DropIdlePrompt, Reason, TrimStarted
from pyggml_server.planner.view import SlotView


def reclaim_actions(ledger: Ledger, n_short: int, reason: Reason) -> list[TrimStarted | DropIdlePrompt]:
    """Free at least `n_short` cells, or all there are.

    Leftovers first, since they are of no more use to anybody; then cached prompts, the one unused for longest first.
    """
    chosen: list[TrimStarted | DropIdlePrompt] = []
    if n_short <= 0:
        return chosen
    for slot in ledger.started:
        if n_short <= 0:
            break
        if n_freed := n_trimmed_cells(slot, slot.n_kept_cells):
            chosen.append(TrimStarted(slot.slot_id, reason, slot.n_kept_cells))
            n_short -= n_freed
    for slot in _cached(ledger):
        if n_short <= 0:
            break
        chosen.append(DropIdlePrompt(slot.slot_id, reason))
        n_short -= slot.n_cells_owned
    return chosen


def n_reclaimable_prefix_cells(ledger: Ledger, keep_slot: int | None = None) -> int:
    """All the cells that `reclaim_prefixes` could free once `reclaim_actions` has freed its own."""
    if keep_slot is None or not ledger.n_prefix_cells:
        return ledger.n_prefix_cells
    kept = ledger.slot(keep_slot)
    return ledger.n_prefix_cells - n_trimmed_cells(kept, 0) + n_trimmed_cells(kept, kept.n_kept_cells)


def reclaim_prefixes(ledger: Ledger, n_short: int, reason: Reason, keep_slot: int | None = None) -> list[TrimStarted]:
    """Make waiting prompts give up even the prefix that they would have reused, the latest first.

    The last thing before somebody fails: a prompt that waits must never stop those for whom it waits.
    """
    chosen: list[TrimStarted] = []
    for slot in reversed(ledger.started):
        if n_short <= 0:
            break
        if slot.slot_id != keep_slot and (n_freed := n_trimmed_cells(slot, 0)):
            chosen.append(TrimStarted(slot.slot_id, reason, 0))
            n_short -= n_freed
    return chosen


def _cached(ledger: Ledger) -> list[SlotView]:
    return sorted(ledger.cached.values(), key=lambda slot: (slot.last_used_s, slot.slot_id))
