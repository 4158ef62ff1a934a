"""A turn for a parked chat that waited too long (rule 7). Off while `Policy.rotate_s` is 0.

The residents who have been in the longest leave, as few as the head needs. A resident keeps its place for `rotate_s`
too: with a long line behind the head every pass would rotate otherwise, and a turn would be one token long.
Never while a park is in flight: a rotation whose copy lands late is looked at again on the pass that sees it land, and
the head finds the room. The last resident may leave: the head takes its place.
"""

from __future__ import annotations

from dataclasses import replace

from pyggml_server.planner.budget import give_backs_for_park
from pyggml_server.planner.margins import promised_prompts
from pyggml_server.planner.plan import Reason, RefuseRotation
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.restores import admit, fits_with_spare, ready_head
from pyggml_server.planner.sketch import PlanSketch
from pyggml_server.planner.units import Unit, is_parkable, resident_units
from pyggml_server.planner.victims import frees_late, park_actions, without
from pyggml_server.planner.view import SlotPhase, View


def rotate(sketch: PlanSketch, policy: Policy) -> None:
    """Park the longest resident for the head of the line, if its turn has come and the budget holds both states."""
    head = ready_head(sketch)
    if head is None or not _is_due(sketch, policy, head):
        return
    leaving = _leaving(sketch.view, policy, head)
    if leaving is None:
        return
    if not _budget_holds(sketch.view, leaving):
        if not any(slot.is_rotation_refusal_known for slot in head):
            sketch.add(RefuseRotation(head[0].slot_id, Reason.BUDGET_TOO_SMALL))
        return
    for unit in leaving:
        sketch.extend(park_actions(sketch.view, unit, Reason.ROTATION) or ())
        if frees_late(unit):
            return
    admit(sketch, policy, head, Reason.ROTATION)


def _is_due(sketch: PlanSketch, policy: Policy, head: Unit) -> bool:
    if policy.rotate_s <= 0 or sketch.has_parks or promised_prompts(sketch.view):
        return False
    if any(slot.phase is SlotPhase.PREEMPTING for slot in sketch.view.slots):
        return False
    return sketch.view.now_s - head[0].parked_at_s > policy.rotate_s


def _leaving(view: View, policy: Policy, head: Unit) -> list[Unit] | None:
    """Who leaves so that the head fits; None when those who had their turn do not make room enough."""
    leaving: list[Unit] = []
    parkable = [unit for unit in resident_units(view) if is_parkable(view, unit)]
    had_turn = [unit for unit in parkable if view.now_s - unit[0].resident_since_s >= policy.rotate_s]
    unlimited = replace(view, ram_limit_bytes=None)  # whether the budget holds it too is the next question
    for unit in sorted(had_turn, key=lambda unit: (unit[0].resident_since_s, unit[0].slot_id)):
        leaving.append(unit)
        unlimited = without(unlimited, unit)
        if fits_with_spare(unlimited, head, policy):
            return leaving
    return None


def _budget_holds(view: View, leaving: list[Unit]) -> bool:
    """Whether all their states fit beside the head's, whose buffer is kept through its restore."""
    for unit in leaving:
        if give_backs_for_park(view, unit) is None:
            return False
        view = without(view, unit)
    return True
