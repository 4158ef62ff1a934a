"""`apply_to(ledger, action)`: what the pool will look like once an action was carried out. Makes no choices.

This is how one plan orders several steps: each decision is made on what the earlier ones leave behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyggml_server.planner.ledger import Ledger, n_trimmed_cells
from pyggml_server.planner.plan import (
    Action,
    DropIdlePrompt,
    FailContext,
    Fetch,
    Forget,
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
    Spill,
    TrimStarted,
)
from pyggml_server.planner.view import SlotPhase, SlotView


def apply_to(ledger: Ledger, action: Action) -> None:
    """Change the ledger as the action will. A park that frees its cells late is PREEMPTING and still holds them."""
    slot = ledger.slot(action.slot_id)
    match action:
        case Park():
            _park(ledger, slot, action)
        case Recompute():
            _drop(ledger, slot)
        case Restore():
            _restore(ledger, slot)
        case Refill():
            ledger.put(_refilling(ledger, slot))
        case Spill() | Fetch() | Forget():
            _move_file(ledger, slot, action)
        case DropIdlePrompt():
            ledger.put(replace(slot, n_cells=0, n_cells_owned=0), n_used=-slot.n_cells_owned)
        case TrimStarted():
            _trim(ledger, slot, action.n_keep_cells)
        case FailContext():
            _free_cells(ledger, slot, slot.n_cells_owned)
            ledger.disk_held_bytes -= slot.state_bytes if slot.is_on_disk else 0
            ledger.put(SlotView(slot.slot_id, SlotPhase.IDLE), held_bytes=-slot.buffer_bytes)
        case GiveBackBuffer():
            ledger.put(replace(slot, buffer_bytes=0), held_bytes=-slot.buffer_bytes)
        case _:
            _note(ledger, slot, action)


def _note(ledger: Ledger, slot: SlotView, action: Action) -> None:
    """What changes neither cells nor host memory: the next step, and what was told."""
    match action:
        case HoldPrompt():
            if slot.phase is not SlotPhase.STARTED:
                ledger.put(replace(slot, n_step_cells=0))
        case LimitPrompt():
            ledger.put(replace(slot, n_step_cells=action.n_tokens))
        case LimitDraft():
            ledger.put(replace(slot, n_step_cells=1 + action.n_draft_tokens))
        case RefuseRotation():
            ledger.put(replace(slot, is_rotation_refusal_known=True))
        case RefusePark():
            ledger.put(replace(slot, is_park_refusal_known=True))
            _stop_holding(ledger, slot)


def _stop_holding(ledger: Ledger, slot: SlotView) -> None:
    """It cannot be parked by hand after all, nor can those that would leave with it: whoever leaves now is in line."""
    for member in ledger.slots():
        is_same_unit = member.slot_id == slot.slot_id or (
            slot.group_id is not None and member.group_id == slot.group_id
        )
        if member.is_held and is_same_unit:
            ledger.put(replace(member, is_held=False))


def start_prompt(ledger: Ledger, slot: SlotView) -> None:
    """This started prompt takes its chunk: it runs, and has not decoded yet."""
    ledger.put(replace(slot, phase=SlotPhase.PROCESSING_PROMPT, has_run_since_restore=False))


def charge_bytes(slot: SlotView) -> int:
    """Host memory that a park of the slot takes beyond the buffer it already has."""
    return max(0, slot.state_bytes - slot.buffer_bytes)


def _free_cells(ledger: Ledger, slot: SlotView, n_freed: int) -> None:
    ledger.put(replace(slot, n_cells_owned=0), n_used=-n_freed)
    if slot.group_id is not None:
        group = ledger.groups[slot.group_id]
        ledger.groups[slot.group_id] = replace(group, n_cells_owned=group.n_cells_owned - n_freed)


def _park(ledger: Ledger, slot: SlotView, park: Park) -> None:
    held_bytes = charge_bytes(slot)
    line = _in_line(ledger)
    is_completed = not slot.frees_on_completion
    if is_completed:
        _free_cells(ledger, slot, _n_freed_cells(ledger, slot))
    parked = replace(
        slot,
        phase=SlotPhase.PREEMPTED if is_completed else SlotPhase.PREEMPTING,
        n_cells_owned=0 if is_completed else slot.n_cells_owned,
        parked_for_request=park.for_request,
        has_transfer_in_flight=not is_completed,
        buffer_bytes=max(slot.buffer_bytes, slot.state_bytes),
        group_id=None if park.leaves_group else slot.group_id,
        **line,
    )
    ledger.put(parked, held_bytes=held_bytes)


def _drop(ledger: Ledger, slot: SlotView) -> None:
    """It leaves its group: what they shared it will compute for itself."""
    n_left = min(1, slot.n_prompt_left)
    line = _in_line(ledger)
    _free_cells(ledger, slot, _n_freed_cells(ledger, slot))
    gone = replace(
        slot,
        phase=SlotPhase.PREEMPTED,
        n_cells=slot.n_cells + slot.n_prompt_left - n_left,
        n_cells_owned=0,
        n_prompt_left=n_left,
        n_step_cells=n_left or slot.n_decode_step_cells,
        needs_refill=True,
        group_id=None,
        **line,
    )
    ledger.put(gone)


def _in_line(ledger: Ledger) -> dict[str, Any]:
    """What the end of the line changes on a slot that joins it."""
    return {
        "parked_at_s": ledger.now_s,
        "park_order": 1 + max(slot.park_order for slot in ledger.slots()),
        "n_tokens_since_park": 0,
        "is_park_refusal_known": False,
        "is_rotation_refusal_known": False,
    }


def _n_freed_cells(ledger: Ledger, slot: SlotView) -> int:
    """Its own cells; and, if it is the last of its group to leave, those that the group shared."""
    if slot.group_id is None:
        return slot.n_cells_owned
    others = (other for other in ledger.slots() if other.group_id == slot.group_id and other.slot_id != slot.slot_id)
    stays = any(other.slot_id in ledger.residents or _holds_until_completion(other) for other in others)
    return slot.n_cells_owned if stays else ledger.groups[slot.group_id].n_cells_owned


def _holds_until_completion(slot: SlotView) -> bool:
    return slot.phase is SlotPhase.PREEMPTING and slot.has_transfer_in_flight and slot.frees_on_completion


def _move_file(ledger: Ledger, slot: SlotView, action: Spill | Fetch | Forget) -> None:
    """What a file takes is counted from its order on, and host memory until the state is in the file."""
    match action:
        case Spill():
            ledger.put(replace(slot, has_transfer_in_flight=True))
            ledger.disk_held_bytes += slot.state_bytes
        case Fetch():
            fetching = replace(slot, has_transfer_in_flight=True, buffer_bytes=slot.state_bytes)
            ledger.put(fetching, held_bytes=slot.state_bytes)
        case Forget():
            _forget(ledger, slot)


def _forget(ledger: Ledger, slot: SlotView) -> None:
    """It keeps its place in line."""
    n_left = min(1, slot.n_prompt_left)
    n_cells = slot.n_cells + slot.n_prompt_left - n_left
    n_step_cells = n_left or slot.n_decode_step_cells
    tokens = replace(slot, n_cells=n_cells, n_prompt_left=n_left, n_step_cells=n_step_cells)
    ledger.put(replace(tokens, needs_refill=True, is_on_disk=False))
    ledger.disk_held_bytes -= slot.state_bytes


def _restore(ledger: Ledger, slot: SlotView) -> None:
    n_taken = slot.n_cells
    if slot.group_id is not None:  # the first one back brings what they share; the rest find it there
        group = ledger.groups[slot.group_id]
        n_taken = group.n_cells - group.n_cells_owned
        ledger.groups[slot.group_id] = replace(group, n_cells_owned=group.n_cells)
    back = replace(
        slot,
        phase=SlotPhase.RESTORING,
        n_cells_owned=n_taken,
        resident_since_s=ledger.now_s,
        parked_for_request=None,
        has_run_since_restore=False,
        has_transfer_in_flight=True,
    )
    ledger.put(back, n_used=n_taken)


def _refilling(ledger: Ledger, slot: SlotView) -> SlotView:
    n_tokens = slot.n_cells + slot.n_prompt_left
    return replace(
        slot,
        phase=SlotPhase.PROCESSING_PROMPT,
        n_cells=0,
        n_prompt_left=n_tokens,
        n_step_cells=min(n_tokens, ledger.n_batch_tokens),
        resident_since_s=ledger.now_s,
        parked_for_request=None,
        has_run_since_restore=False,
        needs_refill=False,
    )


def _trim(ledger: Ledger, slot: SlotView, n_keep_cells: int) -> None:
    n_freed = n_trimmed_cells(slot, n_keep_cells)
    n_lost = max(0, slot.n_kept_cells - n_keep_cells)  # kept prefix given up: the prompt has to process it again
    n_prompt_left = slot.n_prompt_left + n_lost
    trimmed = replace(
        slot,
        n_cells=slot.n_cells - n_freed,
        n_cells_owned=slot.n_cells_owned - n_freed,
        n_kept_cells=slot.n_kept_cells - n_lost,
        n_prompt_left=n_prompt_left,
        n_step_cells=slot.n_step_cells if slot.is_media_step else min(n_prompt_left, ledger.n_batch_tokens),
    )
    ledger.put(trimmed, n_used=-n_freed)
