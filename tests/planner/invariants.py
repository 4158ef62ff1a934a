"""What must hold whatever the planner orders, each with a name that planted faults are caught by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pyggml_server.planner.plan import Action, Plan, Reason
from pyggml_server.planner.policy import Policy
from pyggml_server.planner.view import SlotPhase, SlotView, View


class InvariantError(AssertionError):
    """One named invariant broke."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


def require(holds: bool, name: str, detail: str = "") -> None:
    if not holds:
        raise InvariantError(name, detail)


def check_empty_when_nothing_is_short(view: View, policy: Policy, plan: Plan) -> None:
    """Counted from the bare view, without the planner's own arithmetic: more than the real need, never less."""
    steps = sum(slot.n_step_cells for slot in view.slots if slot.phase is not SlotPhase.IDLE)
    ahead = policy.n_lookahead_steps * sum(slot.n_decode_step_cells for slot in view.slots)
    nothing_short = (
        view.n_cells_used + steps + ahead <= view.n_cells_usable
        and not any(slot.phase in (SlotPhase.PREEMPTED, SlotPhase.PREEMPTING) for slot in view.slots)
        and not any(slot.n_alone_cells > view.n_cells for slot in view.slots)
        and (view.ram_limit_bytes is None or view.ram_held_bytes <= view.ram_limit_bytes)
        and policy.n_preempt_every == 0
        and not any(slot.is_held for slot in view.slots)
    )
    require(not nothing_short or plan is Plan.EMPTY, "empty plan when nothing is short", repr(plan))


def check_sizes_matter_to_parks_only(view: View, plan: Plan, decide: Callable[[View], Plan]) -> None:
    """The engine leaves the sizes of residents out until somebody is to be parked."""
    unsized = tuple(
        replace(slot, state_bytes=0) if slot.phase in (SlotPhase.GENERATING, SlotPhase.PROCESSING_PROMPT) else slot
        for slot in view.slots
    )
    first_look = decide(replace(view, slots=unsized))
    require(first_look.has_parks or first_look == plan, "sizes matter to parks only", f"{first_look} and {plan}")


def check_no_slot_both_parked_and_restored(plan: Plan) -> None:
    names = [(type(action).__name__, action.slot_id) for action in plan.actions]
    parks = [slot_id for name, slot_id in names if name == "Park"]
    restores = [slot_id for name, slot_id in names if name == "Restore"]
    detail = repr(plan.actions)
    require(not set(parks) & set(restores), "no slot both parked and restored", detail)
    require(len(parks) == len(set(parks)), "no slot parked twice", detail)
    require(len(restores) == len(set(restores)), "no slot restored twice", detail)


def check_wait_is_last(plan: Plan) -> None:
    waits = [i for i, action in enumerate(plan.actions) if type(action).__name__ == "WaitForPark"]
    require(waits in ([], [len(plan.actions) - 1]), "a wait is the last action", repr(plan.actions))


def check_not_the_last_resident(action: Action, residents: Iterable[SlotView], *, gives_way: bool = False) -> None:
    """But for one that gives way to the prompt for which it leaves: that takes its place."""
    may_be_last = action.reason in (Reason.FORCED, Reason.BY_HAND, Reason.ROTATION) or gives_way
    others = [slot for slot in residents if slot.slot_id != action.slot_id]
    require(may_be_last or bool(others), "the last resident is not parked", repr(action))


def class_of(view: View, policy: Policy, slot: SlotView) -> int:
    """Rule 13, written out: the class of a slot, and the best one there is for who has waited long enough for it."""
    best = min(other.priority for other in view.slots)
    is_waiting = slot.phase in (SlotPhase.STARTED, SlotPhase.PREEMPTING, SlotPhase.PREEMPTED, SlotPhase.WAIT_OTHER)
    since_s = max(slot.started_at_s, slot.parked_at_s)
    waited_s = (view.now_s if is_waiting else slot.resident_since_s) - since_s
    is_in_turn = is_waiting or view.now_s - slot.resident_since_s < (policy.rotate_s or policy.age_s)
    return best if 0 < policy.age_s < waited_s and is_in_turn else slot.priority


def n_short_of_head(view: View, head: SlotView, policy: Policy, n_more_cells: int) -> int:
    """The admission inequality of rule 6, written out from the rule: cells missing for this head."""
    running = [
        slot
        for slot in view.slots
        if slot.phase in (SlotPhase.GENERATING, SlotPhase.DONE_PROMPT, SlotPhase.PROCESSING_PROMPT, SlotPhase.RESTORING)
    ]
    unit = [slot for slot in view.waiting() if slot is head or (head.group_id and slot.group_id == head.group_id)]
    n_head_cells = view.group(head.group_id).n_cells if head.group_id else head.n_cells
    alone = not running and not n_more_cells
    chunks = sum(slot.n_step_cells for slot in [*running, *unit] if slot.n_prompt_left)
    reserve = sum(slot.n_step_cells for slot in [*running, *unit] if not slot.n_prompt_left)
    reserve += min(chunks, view.n_batch_tokens)
    ahead = 0 if alone else policy.n_lookahead_steps * sum(s.n_decode_step_cells for s in [*running, *unit])
    return view.n_cells_used + n_more_cells + n_head_cells + reserve + ahead - view.n_cells
