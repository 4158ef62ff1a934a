"""A turn for whoever waited too long (rule 7): a parked chat, or a prompt without cells. Off while `rotate_s` is 0.

Both stand in one line by the time since which they wait, so that chats that take turns with each other cannot keep a
prompt out for ever. Those residents leave who have been in the longest: of the first of them who make the room, the
fewest that it takes. For a prompt, those who passed it leave before all others. A resident keeps its place for
`rotate_s` too: with a long line every pass would rotate otherwise, and a turn would be one token long.

No rotation starts while a park is in flight. A rotation whose copy completes late is decided again on the pass that
sees it complete, and the waiter finds the room. The last resident may leave: the waiter takes its place.

Rule 8 goes before rule 7: where host memory cannot hold the states of those who have been in the longest, the next ones
are asked. Only where no set of parks would do, a resident may leave without its state, and only one that the budget
could not hold even if it held nothing else: that one would keep others out for ever. Otherwise there is no turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyggml_server.planner.budget import room_for_parks_bytes
from pyggml_server.planner.choice import Candidate, Leaving, Limits, Reach
from pyggml_server.planner.disk import disk_may_help
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import Reason, RefuseRotation
from pyggml_server.planner.plan_builder import PlanBuilder
from pyggml_server.planner.policy import Policy, VictimPolicy
from pyggml_server.planner.reclaim import n_reclaimable_prefix_cells, reclaim_actions, reclaim_prefixes
from pyggml_server.planner.restores import admit, ready_head
from pyggml_server.planner.shortage import Shortage, restore_shortage, step_shortage
from pyggml_server.planner.units import Unit, is_parkable, resident_units
from pyggml_server.planner.victims import (
    Passers,
    Terms,
    candidate_of,
    choose_from_tiers,
    frees_late,
    leave_actions,
    n_state_bytes,
    rank_of,
)
from pyggml_server.planner.view import SlotPhase, SlotView

#: Who was in the longest is a matter of tiers here, whatever `--preempt-policy` says.
_FEWEST_CELLS = rank_of(Policy(victim=VictimPolicy.SMALLEST))


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn takes. What waiting prompts hold is given up for it too, the prompt's own prefix aside: they wait
    behind it, and must not keep it out."""

    waiter: SlotView
    policy: Policy
    head: Unit = ()  # empty: the waiter is a prompt
    is_due: bool = True  # it has waited for the delay; if not, only lower classes leave for it

    @property
    def keep_slot(self) -> int | None:
        return None if self.head else self.waiter.slot_id

    def shortage(self, ledger: Ledger, n_more_cells: int = 0) -> Shortage:
        if self.head:
            return restore_shortage(ledger, self.head, self.policy, n_more_cells)
        prompt = ledger.slot(self.waiter.slot_id)
        return step_shortage(ledger, [prompt.as_whole()], n_more_cells)

    def shortage_after_reclaim(self, ledger: Ledger) -> Shortage:
        """What is short once everything that costs nobody a park is given up."""
        return self.shortage(ledger, ledger.n_reclaimable_cells + n_reclaimable_prefix_cells(ledger, self.keep_slot))


def give_prompt_its_turn(builder: PlanBuilder, policy: Policy) -> bool:
    """Start the first prompt in line if its turn has come, parking for it whom it takes and the budget allows.

    False when the parked have to wait for that: they were parked later than this prompt began to wait, and small
    ones that come in first would keep the room for it from ever being whole.
    """
    ledger = builder.ledger
    prompt = next(iter(ledger.started), None)
    if prompt is None or not has_turn(ledger, policy, prompt) or _starts_anyway(ledger, prompt):
        return True
    turn = Turn(prompt, policy)
    if _may_rotate(builder, prompt) and _make_room(builder, turn, for_request=prompt.request_order):
        builder.start(ledger.slot(prompt.slot_id))
        return True
    # host memory refuses it its turn: the parked, who would give memory back, must not wait for that
    return bool(ledger.slot(prompt.slot_id).is_rotation_refusal_known or ledger.refused_parks)


def give_head_its_turn(builder: PlanBuilder, policy: Policy) -> None:
    """Park the longest residents for the head of the line, if its turn has come and the budget holds all states. Those
    of a lower class are parked for it at once."""
    head = ready_head(builder)
    if head is None:
        return
    is_due = policy.rotate_s > 0 and _is_due(builder.ledger, policy, head[0].parked_at_s)
    if not is_due and not builder.ledger.classes.are_many:
        return
    if _may_rotate(builder) and _make_room(builder, Turn(head[0], policy, head, is_due)):
        admit(builder, policy, head, Reason.ROTATION)


def has_turn(ledger: Ledger, policy: Policy, slot: SlotView) -> bool:
    """Whether this started prompt has waited longer than the delay, and longer than everybody who is parked."""
    if policy.rotate_s <= 0 or not _is_due(ledger, policy, slot.started_at_s):
        return False
    line = ledger.line
    if not line or ledger.classes.is_better(slot, line[0]):
        return True
    return not ledger.classes.is_better(line[0], slot) and slot.started_at_s < line[0].parked_at_s


def _may_rotate(builder: PlanBuilder, prompt: SlotView | None = None) -> bool:
    """Whether no park is in flight or ordered, and no other prompt was promised the room that a park makes."""
    ledger = builder.ledger
    is_leaving = any(slot.phase is SlotPhase.PREEMPTING for slot in ledger.slots())
    return not (builder.has_parks or is_leaving or any(slot != prompt for slot in ledger.promised))


def _starts_anyway(ledger: Ledger, slot: SlotView) -> bool:
    return not ledger.line and step_shortage(ledger, [slot]).n_short <= ledger.n_reclaimable_cells


def _is_due(ledger: Ledger, policy: Policy, waits_since_s: float) -> bool:
    return ledger.now_s - waits_since_s > policy.rotate_s


def _make_room(builder: PlanBuilder, turn: Turn, for_request: int | None = None) -> bool:
    """Make all of this room, at once. False when it cannot be made, or comes free only later."""
    leaving = _leaving(builder, turn)
    if leaving is None:
        return False
    ledger = builder.ledger
    for one in sorted(leaving, key=_resident_since):
        builder.extend(leave_actions(ledger, one, Reason.ROTATION, for_request))
        if frees_late(one):
            return False
    builder.extend(reclaim_actions(ledger, turn.shortage(ledger).n_short, Reason.ROTATION))
    builder.extend(reclaim_prefixes(ledger, turn.shortage(ledger).n_short, Reason.ROTATION, turn.keep_slot))
    return True


def _leaving(builder: PlanBuilder, turn: Turn) -> list[Leaving] | None:
    """Who leaves so that it fits; None when those who may be asked do not make room enough, or host memory refuses."""
    ledger = builder.ledger
    shortage = turn.shortage_after_reclaim(ledger)
    if shortage.n_short <= 0:
        return []
    room_bytes = room_for_parks_bytes(ledger)
    within_budget = Limits(room_bytes)
    tiers = _tiers(ledger, turn)
    leaving = choose_from_tiers(
        _candidates(ledger, tiers, shortage, room_bytes), shortage, within_budget, _FEWEST_CELLS
    )
    if leaving is not None or room_bytes is None:
        return leaving
    may_drop = {id(unit) for tier in tiers for unit in tier if _is_beyond_budget(ledger, unit)}
    if may_drop:
        droppable = _candidates(ledger, tiers, shortage, None, may_drop)
        leaving = choose_from_tiers(droppable, shortage, within_budget, _FEWEST_CELLS)
    if leaving is None and not turn.waiter.is_rotation_refusal_known and not disk_may_help(builder):
        reach = Reach(shortage, Limits())
        for tier in _candidates(ledger, tiers, shortage, None):
            reach.add(tier)
        if reach.is_enough():
            builder.add(RefuseRotation(turn.waiter.slot_id, Reason.BUDGET_TOO_SMALL))
    return leaving


def _candidates(
    ledger: Ledger, tiers: list[list[Unit]], shortage: Shortage, room_bytes: int | None, may_drop: Collection[int] = ()
) -> Iterator[list[Candidate]]:
    """Those of each tier whose states the room in host memory could hold one by one, and those who may be dropped."""
    for tier in tiers:
        yield [
            candidate_of(ledger, unit, shortage, Terms(may_drop=id(unit) in may_drop))
            for unit in tier
            if room_bytes is None or n_state_bytes(unit) <= room_bytes
        ]


def _tiers(ledger: Ledger, turn: Turn) -> list[list[Unit]]:
    """Lower classes, the last one first; those who passed the prompt; and who had their turn, one after another."""
    classes, waiter = ledger.classes, turn.waiter
    passers = Passers(ledger, [] if turn.head else [waiter])
    lower: dict[int, list[Unit]] = {}
    passed: list[Unit] = []
    had_turn: list[Unit] = []
    for unit in resident_units(ledger):
        if classes.is_better(waiter, unit[0]):
            lower.setdefault(-classes.of(unit[0]), []).append(unit)
        elif classes.is_better(unit[0], waiter):
            continue
        elif passers.has(unit):
            passed.append(unit)
        elif turn.is_due and ledger.now_s - unit[0].resident_since_s >= turn.policy.rotate_s:
            had_turn.append(unit)
    had_turn.sort(key=lambda unit: (unit[0].resident_since_s, unit[0].slot_id))
    tiers = [*(lower[key] for key in sorted(lower)), passed, *([unit] for unit in had_turn)]
    return [[unit for unit in tier if is_parkable(ledger, unit)] for tier in tiers]


def _resident_since(leaving: Leaving) -> tuple[float, int]:
    first = leaving.candidate.unit[0]
    return (first.resident_since_s, first.slot_id)


def _is_beyond_budget(ledger: Ledger, unit: Unit) -> bool:
    """Whether its state would not fit even if nothing else were held."""
    return ledger.ram_limit_bytes is not None and sum(slot.state_bytes for slot in unit) > ledger.ram_limit_bytes
