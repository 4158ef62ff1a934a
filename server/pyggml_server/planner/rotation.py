"""A turn for whoever waited too long (rule 7): a parked chat, or a prompt without cells. Off while `rotate_s` is 0.

Both stand in one line by the time since which they wait, so that chats that take turns with each other cannot keep a
prompt out for ever. The residents who have been in the longest leave, as few as it takes. A resident keeps its place
for `rotate_s` too: with a long line every pass would rotate otherwise, and a turn would be one token long.
No rotation starts while a park is in flight. A rotation whose copy completes late is decided again on the pass that
sees it complete, and the waiter finds the room. The last resident may leave: the waiter takes its place.
A budget that could hold the resident, but not beside what it holds now, gives no turn. One that could not hold it even
alone is no reason to let others wait for ever: then the resident leaves without its state (rule 8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyggml_server.planner.budget import give_backs_for_park
from pyggml_server.planner.margins import n_restore_short, n_step_short, promised_prompts
from pyggml_server.planner.plan import Reason, Recompute, RefuseRotation
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.reclaim import (
    n_reclaimable_cells,
    n_reclaimable_prefix_cells,
    reclaim_actions,
    reclaim_prefixes,
)
from pyggml_server.planner.restores import admit, ready_head
from pyggml_server.planner.units import Unit, is_parkable, resident_units
from pyggml_server.planner.victims import frees_late, park_actions, without
from pyggml_server.planner.view import SlotPhase, SlotView, View


@dataclass(frozen=True, slots=True)
class Room:
    """The cells that a turn takes. What waiting prompts hold is given up for it too, `keep_slot`'s own prefix aside:
    they wait behind it, and must not keep it out."""

    short_of: Callable[[View], int]
    keep_slot: int | None = None

    def fits(self, view: View) -> bool:
        """Whether the room is there once everything that costs nobody a park is given up."""
        return self.short_of(view) <= n_reclaimable_cells(view) + n_reclaimable_prefix_cells(view, self.keep_slot)


def give_prompt_its_turn(builder: PlanBuilder, policy: Policy) -> bool:
    """Start the first prompt in line if its turn has come, parking for it whom it takes and the budget allows.

    False when whoever is parked has to wait for that: they were parked later than this prompt began to wait, and small
    ones that come in first would keep the room for it from ever being whole.
    """
    prompt = next(iter(builder.view.started()), None)
    if prompt is None or not has_turn(builder.view, policy, prompt) or _starts_anyway(builder.view, prompt):
        return True
    whole = replace(prompt, n_step_cells=prompt.n_prompt_left, is_media_step=True)  # uncut, and beyond one batch
    room = Room(lambda view: n_step_short(view, [whole]), keep_slot=prompt.slot_id)
    if _may_rotate(builder, prompt) and _make_room(builder, policy, prompt, room, for_request=prompt.request_order):
        builder.start(builder.view.slot(prompt.slot_id))
        return True
    # host memory refuses it its turn: the parked, who would give memory back, must not wait for that
    return bool(builder.view.slot(prompt.slot_id).is_rotation_refusal_known or builder.view.refused_parks)


def give_head_its_turn(builder: PlanBuilder, policy: Policy) -> None:
    """Park the longest residents for the head of the line, if its turn has come and the budget holds all states."""
    head = ready_head(builder)
    if head is None or policy.rotate_s <= 0 or not _is_due(builder.view, policy, head[0].parked_at_s):
        return
    room = Room(lambda view: n_restore_short(view, head, policy))
    if _may_rotate(builder) and _make_room(builder, policy, head[0], room):
        admit(builder, policy, head, Reason.ROTATION)


def _may_rotate(builder: PlanBuilder, prompt: SlotView | None = None) -> bool:
    """Whether no park is in flight or ordered, and no other prompt was promised the room that a park makes."""
    is_leaving = any(slot.phase is SlotPhase.PREEMPTING for slot in builder.view.slots)
    return not (builder.has_parks or is_leaving or any(slot != prompt for slot in promised_prompts(builder.view)))


def has_turn(view: View, policy: Policy, slot: SlotView) -> bool:
    """Whether this started prompt has waited longer than the delay, and longer than everybody who is parked."""
    line = view.waiting()
    is_first = not line or slot.started_at_s < line[0].parked_at_s
    return policy.rotate_s > 0 and is_first and _is_due(view, policy, slot.started_at_s)


def _starts_anyway(view: View, slot: SlotView) -> bool:
    return not view.waiting() and n_step_short(view, [slot]) <= n_reclaimable_cells(view)


def _is_due(view: View, policy: Policy, waits_since_s: float) -> bool:
    return view.now_s - waits_since_s > policy.rotate_s


def _make_room(
    builder: PlanBuilder, policy: Policy, waiter: SlotView, room: Room, for_request: int | None = None
) -> bool:
    """Make all of this room, at once. False when it cannot be made, or comes free only later."""
    leaving = _leaving(builder.view, policy, room)
    if leaving is None:
        return False
    if not _budget_holds(builder.view, leaving):
        if not waiter.is_rotation_refusal_known:
            builder.add(RefuseRotation(waiter.slot_id, Reason.BUDGET_TOO_SMALL))
        return False
    for unit in leaving:
        parks = park_actions(builder.view, unit, Reason.ROTATION, for_request)
        builder.extend(parks or [Recompute(slot.slot_id, Reason.ROTATION) for slot in unit])
        if parks and frees_late(unit):
            return False
    builder.extend(reclaim_actions(builder.view, room.short_of(builder.view), Reason.ROTATION))
    builder.extend(reclaim_prefixes(builder.view, room.short_of(builder.view), Reason.ROTATION, room.keep_slot))
    return True


def _leaving(view: View, policy: Policy, room: Room) -> list[Unit] | None:
    """Who leaves so that it fits; None when those who had their turn do not make room enough."""
    leaving: list[Unit] = []
    parkable = [unit for unit in resident_units(view) if is_parkable(view, unit)]
    had_turn = [unit for unit in parkable if view.now_s - unit[0].resident_since_s >= policy.rotate_s]
    had_turn.sort(key=lambda unit: (unit[0].resident_since_s, unit[0].slot_id))
    unlimited = replace(view, ram_limit_bytes=None)  # whether the budget holds it too is the next question
    while not room.fits(unlimited):
        if not had_turn:
            return None
        leaving.append(had_turn.pop(0))
        unlimited = without(unlimited, leaving[-1])
    return leaving


def _budget_holds(view: View, leaving: list[Unit]) -> bool:
    """Whether all their states fit beside those that are parked; a head's buffer is kept through its restore. Those
    that never could are left out of it: they leave without."""
    for unit in leaving:
        if give_backs_for_park(view, unit) is None and not _is_beyond_budget(view, unit):
            return False
        view = without(view, unit)
    return True


def _is_beyond_budget(view: View, unit: Unit) -> bool:
    """Whether its state would not fit even if nothing else were held."""
    return view.ram_limit_bytes is not None and sum(slot.state_bytes for slot in unit) > view.ram_limit_bytes
