"""Whom to park (rule 5): who may leave, in which order they are asked, and what host memory holds of them.

Candidates stand in tiers: those of a later tier are looked at only where the tiers before it are not enough. The last
resident is never parked, nor one that owns no cells. If all together are not enough, nobody is parked: a park that does
not help is only a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pyggml_server.planner.budget import give_backs_for_park, room_for_parks_bytes
from pyggml_server.planner.choice import N_EXACT, Candidate, Leaving, Limits, Rank, Reach, cheapest
from pyggml_server.planner.ledger import Ledger
from pyggml_server.planner.plan import Action, Park, Reason, Recompute, RefusePark
from pyggml_server.planner.policy import Policy, VictimPolicy
from pyggml_server.planner.shortage import Shortage
from pyggml_server.planner.units import Unit, is_droppable, is_parkable, n_owned_cells, resident_units
from pyggml_server.planner.view import SlotView


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms residents may be asked to leave.

    may_drop        those that host memory refuses leave too, without their state (rule 8).
    splits_groups   the members of a group leave one by one, each with a copy of what they share.
    ignores_budget  as if host memory had no limit.
    newcomers       prompts that this plan lets start: they stay, and make nobody else less than the last resident.
    waiter          the prompt for which room is made. Those who passed it, or are of a lower class, leave first and
                    make nobody else less than the last resident. None: room for those who run.
    """

    may_drop: bool = False
    splits_groups: bool = False
    ignores_budget: bool = False
    newcomers: Collection[int] = ()
    waiter: SlotView | None = None


def choose_victims(
    ledger: Ledger, policy: Policy, shortage: Shortage, terms: Terms | None = None
) -> list[Leaving] | None:
    """Who leaves so that nothing is short any more; None when parking everybody allowed is not enough."""
    terms = terms or Terms()
    if shortage.n_short <= 0:
        return []
    if not _could_ever_help(ledger, shortage, terms):
        return None
    room_bytes = None if terms.ignores_budget else room_for_parks_bytes(ledger)
    units = _without(_units(ledger, terms), terms.newcomers)
    giving_way, tiers = _tiers(ledger, terms, units)
    n_counted = len(units) - len(giving_way)

    def candidates(tier: list[Unit]) -> list[Candidate]:
        if room_bytes is not None and not terms.may_drop:
            tier = [unit for unit in tier if n_state_bytes(unit) <= room_bytes]
        if len(tier) > N_EXACT and not terms.may_drop:
            tier = _shortlist(ledger, policy, shortage, tier)
        made = [
            candidate_of(ledger, unit, shortage, terms, is_counted=unit[0].slot_id not in giving_way) for unit in tier
        ]
        return [one for one in made if one.n_owned_cells and (one.can_park or one.can_drop)]

    limits = Limits(room_bytes, n_counted - 1 if n_counted else None)
    return choose_from_tiers(map(candidates, tiers), shortage, limits, rank_of(policy))


def _tiers(ledger: Ledger, terms: Terms, units: list[Unit]) -> tuple[set[int], list[list[Unit]]]:
    """Who makes nobody else less than the last resident (by their first slot), and who is asked in which order: by
    class, the last one first, and in a class those who passed a prompt that waits. A better class leaves for no prompt.
    """
    waiter, classes = terms.waiter, ledger.classes
    passers = Passers(ledger, ledger.started if waiter is None else [waiter])
    passed = passers.among(units)
    giving_way = set() if waiter is None else passed
    if not classes.are_many:
        first = [unit for unit in units if unit[0].slot_id in passed] if passed else []
        return giving_way, [first, [unit for unit in units if unit[0].slot_id not in passed] if passed else units]
    tiers: dict[tuple[int, bool], list[Unit]] = {}
    for unit in units:
        slot = unit[0]
        if waiter is not None and classes.is_better(waiter, slot):
            giving_way.add(slot.slot_id)
        if waiter is None or not classes.is_better(slot, waiter):
            tiers.setdefault((-classes.of(slot), slot.slot_id not in passed), []).append(unit)
    return giving_way, [tiers[key] for key in sorted(tiers)]


def _shortlist(ledger: Ledger, policy: Policy, shortage: Shortage, units: Sequence[Unit]) -> list[Unit]:
    """Of many that may be parked: the first by policy that covers the shortage; else the largest, and some to spare."""
    owned = [(n_owned_cells(ledger, unit), unit) for unit in units if is_parkable(ledger, unit)]
    n_short = shortage.n_short
    if covering := [one for one in owned if one[0] >= n_short]:
        return [min(covering, key=_RANK_OF_ONE[policy.victim])[1]]
    owned.sort(key=lambda one: (-one[0], one[1][0].request_order))
    n_listed = n_cells = 0
    while n_listed < len(owned) and n_cells < n_short:
        n_cells += owned[n_listed][0]
        n_listed += 1
    return [unit for _, unit in owned[: n_listed + N_EXACT]]


def choose_from_tiers(
    tiers: Iterable[Sequence[Candidate]], shortage: Shortage, limits: Limits, rank: Rank
) -> list[Leaving] | None:
    """The cheapest set of the first tiers that have one."""
    candidates: list[Candidate] = []
    reach = Reach(shortage, limits)
    for tier in tiers:
        candidates.extend(tier)
        reach.add(tier)
        if tier and reach.is_enough():
            leaving = cheapest(candidates, shortage, limits, rank)
            if leaving is not None:
                return leaving
    return None


def candidate_of(ledger: Ledger, unit: Unit, shortage: Shortage, terms: Terms, *, is_counted: bool = True) -> Candidate:
    first = unit[0]
    n_owned = first.n_cells_owned if terms.splits_groups else n_owned_cells(ledger, unit)
    return Candidate(
        unit,
        n_owned,
        shortage.share_of(unit, n_owned),
        n_state_bytes(unit),
        is_parkable(ledger, unit),
        terms.may_drop and is_droppable(unit),
        terms.splits_groups and first.group_id is not None,
        is_counted,
        first.request_order if len(unit) == 1 else min(slot.request_order for slot in unit),
    )


def n_state_bytes(unit: Unit) -> int:
    """Host memory that the unit takes while it is parked: its states, or buffers that it has if they are larger."""
    if len(unit) == 1:  # asked of every resident in turn: nearly all are alone
        slot = unit[0]
        return slot.state_bytes if slot.state_bytes > slot.buffer_bytes else slot.buffer_bytes
    return sum(max(slot.state_bytes, slot.buffer_bytes) for slot in unit)


class Passers:
    """Who got cells although an earlier prompt waits for some (rule 6)."""

    def __init__(self, ledger: Ledger, waiting: Sequence[SlotView]) -> None:
        self._waiting, self._classes = waiting, ledger.classes
        self._first_order = min((slot.request_order for slot in waiting), default=0)

    def has(self, unit: Unit) -> bool:
        if not self._waiting or unit[0].request_order <= self._first_order:
            return False  # true of nearly all, and quickly told
        return all(map(self._has_passed, unit))

    def among(self, units: Sequence[Unit]) -> set[int]:
        """Those of them that have, by their first slot."""
        if not self._waiting:
            return set()
        later = [unit for unit in units if unit[0].request_order > self._first_order]
        return {unit[0].slot_id for unit in later if self.has(unit)}

    def _has_passed(self, slot: SlotView) -> bool:
        """It came later, in the line and to its slot, than one that still waits."""
        return any(
            slot.request_order > waiter.request_order
            and slot.started_at_s >= waiter.started_at_s
            and not self._classes.is_better(slot, waiter)
            for waiter in self._waiting
        )


def leave_actions(ledger: Ledger, leaving: Leaving, reason: Reason, for_request: int | None = None) -> list[Action]:
    """The orders that take a chosen unit out of the pool, idle buffers given back first."""
    unit = leaving.candidate.unit
    if leaving.is_dropped:
        return [Recompute(slot.slot_id, reason) for slot in unit]
    parks = [Park(slot.slot_id, reason, for_request, leaving.candidate.leaves_group) for slot in unit]
    return [*(give_backs_for_park(ledger, unit) or ()), *parks]


def refusals(ledger: Ledger, policy: Policy, shortage: Shortage, terms: Terms | None = None) -> list[RefusePark]:
    """Says that the budget refuses the park of the unit that would be the first victim without a budget."""
    terms = terms or Terms()
    room_bytes = room_for_parks_bytes(ledger)
    if room_bytes is None or not _could_ever_help(ledger, shortage, terms):
        return []
    units = _without(resident_units(ledger), terms.newcomers)
    first = next(iter(_shortlist(ledger, policy, shortage, units)), None)
    if first is None or first[0].is_park_refusal_known or n_state_bytes(first) <= room_bytes:
        return []
    would_leave = choose_victims(ledger, policy, shortage, replace(terms, ignores_budget=True))
    return [RefusePark(first[0].slot_id, Reason.BUDGET_TOO_SMALL)] if would_leave else []


def refusal(unit: Unit) -> list[RefusePark]:
    """The budget refuses this unit's park: said once while it stays in the pool."""
    return [] if unit[0].is_park_refusal_known else [RefusePark(unit[0].slot_id, Reason.BUDGET_TOO_SMALL)]


def frees_late(leaving: Leaving) -> bool:
    """Whether its cells come free only when the copy completes."""
    return not leaving.is_dropped and any(slot.frees_on_completion for slot in leaving.candidate.unit)


_RANK_OF_ONE: dict[VictimPolicy, Callable[[tuple[int, Unit]], tuple[int, int]]] = {
    VictimPolicy.SMALLEST: lambda one: (one[0], -one[1][0].request_order),
    VictimPolicy.YOUNGEST: lambda one: (-one[1][0].request_order, 0),
    VictimPolicy.OLDEST: lambda one: (one[1][0].request_order, 0),
}


def rank_of(policy: Policy) -> Rank:
    """Smaller goes first. Of equals the youngest, who has waited least."""
    match policy.victim:
        case VictimPolicy.SMALLEST:
            return lambda set_: (sum(c.n_owned_cells for c in set_), *sorted(-c.order for c in set_))
        case VictimPolicy.YOUNGEST:
            return lambda set_: tuple(sorted(-c.order for c in set_))
        case VictimPolicy.OLDEST:
            return lambda set_: tuple(sorted(c.order for c in set_))


def _units(ledger: Ledger, terms: Terms) -> list[Unit]:
    return [(slot,) for slot in ledger.residents.values()] if terms.splits_groups else resident_units(ledger)


def _without(units: list[Unit], newcomers: Collection[int]) -> list[Unit]:
    return [unit for unit in units if unit[0].slot_id not in newcomers] if newcomers else units


def _could_ever_help(ledger: Ledger, shortage: Shortage, terms: Terms) -> bool:
    """Whether it would be enough if all but the smallest resident left. A quick no: the usual answer while a prompt
    waits pass after pass."""
    slots = ledger.residents.values()
    waiter = terms.waiter
    may_all_leave = waiter is not None and (
        ledger.classes.are_many or waiter.request_order < max([slot.request_order for slot in slots], default=0)
    )
    if len(slots) < 2 and not may_all_leave:
        return False
    n_shared = sum(group.n_cells_owned for group in ledger.groups.values())
    n_cells = ledger.n_resident_cells + ledger.n_step_cells + ledger.n_chunk_cells + ledger.n_beyond_cells + n_shared
    n_ahead = shortage.n_steps_ahead * ledger.n_decode_cells
    n_staying = 0 if may_all_leave else min([slot.n_cells_owned for slot in slots])
    return shortage.n_short - n_cells - n_ahead + n_staying <= 0
