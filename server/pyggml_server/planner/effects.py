"""`apply_to(view, action)`: the view as it will be once one action was carried out. Pure; makes no choices.

This is how one plan can order several steps: each decision is made on the view that the earlier ones leave behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyggml_server.planner.plan import (
    Action,
    DropIdlePrompt,
    FailContext,
    GiveBackBuffer,
    HoldPrompt,
    LimitDraft,
    LimitPrompt,
    Park,
    Recompute,
    Refill,
    RefusePark,
    RefuseRotation,
    Restore,
    TrimStarted,
)
from pyggml_server.planner.view import RESIDENT_PHASES, SlotPhase, SlotView, View


def apply_to(view: View, action: Action) -> View:
    """The view after one action. A park that frees its cells late is PREEMPTING and still holds them."""
    slot = view.slot(action.slot_id)
    match action:
        case Park():
            return _parked(view, slot, action, is_completed=not slot.frees_on_completion)
        case Recompute():
            return _dropped(view, slot)
        case Restore():
            return _restoring(view, slot)
        case Refill():
            return _with(view, _refilling(view, slot))
        case DropIdlePrompt():
            return _with(view, replace(slot, n_cells=0, n_cells_owned=0), n_used=-slot.n_cells_owned)
        case TrimStarted():
            return _trimmed(view, slot, action.n_keep_cells)
        case FailContext():
            view = _with(view, replace(slot, n_cells_owned=0), n_used=-slot.n_cells_owned)  # its group's count too
            return _with(view, SlotView(slot.slot_id, SlotPhase.IDLE), held_bytes=-slot.buffer_bytes)
        case GiveBackBuffer():
            return _with(view, replace(slot, buffer_bytes=0), held_bytes=-slot.buffer_bytes)
        case _:
            return _with(view, _after_limit(slot, action))


def apply_completed(view: View, park: Park) -> View:
    """The view once this park has completed, whenever its cells come free."""
    return _parked(view, view.slot(park.slot_id), park, is_completed=True)


def start_prompt(view: View, slot: SlotView) -> View:
    """The view once this started prompt may take its chunk: it runs, and has not decoded yet."""
    running = replace(slot, phase=SlotPhase.PROCESSING_PROMPT, has_run_since_restore=False)
    return _with(view, running)


def n_trimmed_cells(slot: SlotView, n_keep_cells: int) -> int:
    """Cells that come free when a started slot is cut down to its first `n_keep_cells`."""
    return max(0, min(slot.n_cells - n_keep_cells, slot.n_cells_owned))


def charge_bytes(slot: SlotView) -> int:
    """Host memory that a park of the slot takes beyond the buffer it already has."""
    return max(0, slot.state_bytes - slot.buffer_bytes)


def _with(view: View, slot: SlotView, n_used: int = 0, held_bytes: int = 0) -> View:
    """The view with this slot in place of its former self; cells that a member gains or loses are its group's too."""
    groups = view.groups
    if slot.group_id is not None and n_used:
        groups = tuple(
            replace(g, n_cells_owned=g.n_cells_owned + n_used) if g.group_id == slot.group_id else g for g in groups
        )
    return replace(
        view,
        slots=tuple(slot if old.slot_id == slot.slot_id else old for old in view.slots),
        groups=groups,
        n_cells_used=view.n_cells_used + n_used,
        ram_held_bytes=view.ram_held_bytes + held_bytes,
    )


def _parked(view: View, slot: SlotView, park: Park, *, is_completed: bool) -> View:
    parked = replace(
        slot,
        phase=SlotPhase.PREEMPTED if is_completed else SlotPhase.PREEMPTING,
        n_cells_owned=0 if is_completed else slot.n_cells_owned,
        parked_for_request=park.for_request,
        has_transfer_in_flight=not is_completed,
        buffer_bytes=max(slot.buffer_bytes, slot.state_bytes),
        **_in_line(view),
    )
    n_freed = _n_freed_by_park(view, slot) if is_completed else 0
    return _with(view, parked, n_used=-n_freed, held_bytes=charge_bytes(slot))


def _dropped(view: View, slot: SlotView) -> View:
    """It leaves its group: what they shared it will compute for itself."""
    n_left = min(1, slot.n_prompt_left)
    view = _with(view, replace(slot, n_cells_owned=0), n_used=-_n_freed_by_park(view, slot))
    gone = replace(
        slot,
        phase=SlotPhase.PREEMPTED,
        n_cells=slot.n_cells + slot.n_prompt_left - n_left,
        n_cells_owned=0,
        n_prompt_left=n_left,
        n_step_cells=n_left or slot.n_decode_step_cells,
        needs_refill=True,
        group_id=None,
        **_in_line(view),
    )
    return _with(view, gone)


def _in_line(view: View) -> dict[str, Any]:
    """What the end of the line changes on whoever joins it."""
    return {
        "parked_at_s": view.now_s,
        "park_order": 1 + max(slot.park_order for slot in view.slots),
        "n_tokens_since_park": 0,
        "is_park_refusal_known": False,
        "is_rotation_refusal_known": False,
    }


def _n_freed_by_park(view: View, slot: SlotView) -> int:
    """Its own cells; and, if it is the last of its group to leave, those that the group shared."""
    if slot.group_id is None:
        return slot.n_cells_owned
    others = (other for other in view.slots if other.group_id == slot.group_id and other.slot_id != slot.slot_id)
    stays = any(other.phase in RESIDENT_PHASES or _holds_until_completion(other) for other in others)
    return slot.n_cells_owned if stays else view.group(slot.group_id).n_cells_owned


def _holds_until_completion(slot: SlotView) -> bool:
    return slot.phase is SlotPhase.PREEMPTING and slot.has_transfer_in_flight and slot.frees_on_completion


def _restoring(view: View, slot: SlotView) -> View:
    n_taken = slot.n_cells
    if slot.group_id is not None:  # the first one back brings what they share; the rest find it there
        group = view.group(slot.group_id)
        n_taken = group.n_cells - group.n_cells_owned
    back = replace(
        slot,
        phase=SlotPhase.RESTORING,
        n_cells_owned=n_taken,
        resident_since_s=view.now_s,
        parked_for_request=None,
        has_run_since_restore=False,
        has_transfer_in_flight=True,
    )
    return _with(view, back, n_used=n_taken)


def _refilling(view: View, slot: SlotView) -> SlotView:
    n_tokens = slot.n_cells + slot.n_prompt_left
    return replace(
        slot,
        phase=SlotPhase.PROCESSING_PROMPT,
        n_cells=0,
        n_prompt_left=n_tokens,
        n_step_cells=min(n_tokens, view.n_batch_tokens),
        resident_since_s=view.now_s,
        parked_for_request=None,
        has_run_since_restore=False,
        needs_refill=False,
    )


def _trimmed(view: View, slot: SlotView, n_keep_cells: int) -> View:
    n_freed = n_trimmed_cells(slot, n_keep_cells)
    n_lost = max(0, slot.n_kept_cells - n_keep_cells)  # kept prefix given up: the prompt has to process it again
    n_prompt_left = slot.n_prompt_left + n_lost
    trimmed = replace(
        slot,
        n_cells=slot.n_cells - n_freed,
        n_cells_owned=slot.n_cells_owned - n_freed,
        n_kept_cells=slot.n_kept_cells - n_lost,
        n_prompt_left=n_prompt_left,
        n_step_cells=slot.n_step_cells if slot.is_media_step else min(n_prompt_left, view.n_batch_tokens),
    )
    return _with(view, trimmed, n_used=-n_freed)


def _after_limit(slot: SlotView, action: Action) -> SlotView:
    match action:
        case HoldPrompt():
            return slot if slot.phase is SlotPhase.STARTED else replace(slot, n_step_cells=0)
        case LimitPrompt():
            return replace(slot, n_step_cells=action.n_tokens)
        case LimitDraft():
            return replace(slot, n_step_cells=1 + action.n_draft_tokens)
        case RefuseRotation():
            return replace(slot, is_rotation_refusal_known=True)
        case RefusePark():
            return replace(slot, is_park_refusal_known=True)
        case _:
            return slot
