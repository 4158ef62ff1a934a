"""Requests of `n > 1` in the model engine: a parent, its children, and the cells of the prompt that they share."""

from __future__ import annotations

from collections.abc import Iterable

from pyggml_server.planner.view import GroupView, SlotPhase

from tests.planner.model_slot import ModelSlot


def sharers(slots: Iterable[ModelSlot], family: int) -> list[ModelSlot]:
    """The slots that share the prompt of this family."""
    return [slot for slot in slots if slot.n_shared and slot.request is not None and slot.request.family == family]


def families(slots: list[ModelSlot]) -> list[int]:
    """Those that share something."""
    return sorted({slot.request.family for slot in slots if slot.n_shared and slot.request is not None})


def n_used_cells(slots: list[ModelSlot]) -> int:
    """Each cell once, however many use it."""
    return n_counted_cells(slots) - n_promised_cells(slots)


def n_promised_cells(slots: list[ModelSlot]) -> int:
    """What is counted and not in the pool yet; families come in as one."""
    return n_counted_cells([slot for slot in slots if slot.is_promised])


def n_counted_cells(slots: list[ModelSlot]) -> int:
    """In use or promised."""
    shared = (sharers(slots, family) for family in families(slots))
    n_shared = sum(group[0].n_shared for group in shared if any(slot.counts_cells for slot in group))
    return n_shared + sum(slot.n_owned for slot in slots)


def group_views(slots: list[ModelSlot]) -> tuple[GroupView, ...]:
    return tuple(_group_view(family, sharers(slots, family)) for family in families(slots))


def share_prompt(parent: ModelSlot, children: list[ModelSlot], now_s: float) -> None:
    """The parent's prompt is in: its children use the same cells and generate from here on."""
    for child in children:
        assert child.request is not None
        child.phase, child.n_cells, child.resident_since_s = SlotPhase.GENERATING, parent.n_cells, now_s
        child.request.n_generated, child.request.first_token_s = 1, now_s
    if children:
        for slot in (parent, *children):
            slot.n_shared = parent.n_cells


def leave_family(slots: list[ModelSlot], slot: ModelSlot) -> None:
    """The slot shares nothing any more, and neither does the last one that is left."""
    if not slot.n_shared or slot.request is None:
        return
    left = [other for other in sharers(slots, slot.request.family) if other is not slot]
    slot.n_shared = 0
    if len(left) == 1:
        left[0].n_shared = 0


def waiting_children(slots: list[ModelSlot], parent: ModelSlot) -> list[ModelSlot]:
    """Children whose prompt this slot processes."""
    if parent.request is None or not parent.request.family or parent.phase is SlotPhase.WAIT_OTHER:
        return []
    waiting = (slot for slot in slots if slot.phase is SlotPhase.WAIT_OTHER and slot.request is not None)
    return [slot for slot in waiting if slot.request and slot.request.family == parent.request.family]


def _group_view(family: int, group: list[ModelSlot]) -> GroupView:
    n_shared = group[0].n_shared
    inside = [slot for slot in group if slot.counts_cells]
    return GroupView(
        family,
        n_cells=n_shared + sum(slot.n_cells - n_shared for slot in group),
        n_cells_owned=(n_shared if inside else 0) + sum(slot.n_owned for slot in inside),
    )
