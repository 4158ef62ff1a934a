"""Whom to park (rule 5): who may leave, in which order they are asked, and what host memory holds of them.

Candidates stand in tiers: those of a later tier are looked at only where the tiers before it are not enough. The last
resident is never parked, nor one that owns no cells. If all together are not enough, nobody is parked: a park that does
not help is only a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pyggml_server.planner.budget import give_backs_for_park, room_for_parks_bytes
from pyggml_server.planner.choice import Candidate, Leaving, Limits, Looks, Rank, cheapest, could_be_enough
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
    waiter          the prompt for which room is made: who passed it leaves first, and neither makes anybody else less
                    than the last resident. None: room for those who run.
    """

    may_drop: bool = False
    splits_groups: bool = False
    ignores_budget: bool = False
    newcomers: Collection[int] = ()
    waiter: SlotView | None = None


def choose_victims(
    ledger: Ledger, policy: Policy, shortage: Shortage, terms: Terms | None = None, looks: Looks | None = None
) -> list[Leaving] | None:
    """Who leaves so that nothing is short any more; None when parking everybody allowed is not enough."""
    terms = terms or Terms()
    if shortage.n_short <= 0:
        return []
    if not _could_ever_help(ledger, shortage, terms):
        return None
    passers = Passers(ledger.started if terms.waiter is None else [terms.waiter])
    units = [unit for unit in _units(ledger, terms) if unit[0].slot_id not in terms.newcomers]
    passed = [passers.has(unit) for unit in units]
    is_counted = [terms.waiter is None or not has_passed for has_passed in passed]
    tiers: tuple[list[Candidate], list[Candidate]] = ([], [])
    for unit, has_passed, counts in zip(units, passed, is_counted, strict=True):
        candidate = candidate_of(ledger, unit, shortage, terms, is_counted=counts)
        if candidate.n_owned_cells and (candidate.can_park or candidate.can_drop):
            tiers[not has_passed].append(candidate)
    room_bytes = None if terms.ignores_budget else room_for_parks_bytes(ledger)
    n_counted = sum(is_counted)
    limits = Limits(room_bytes, n_counted - 1 if n_counted else None)
    return choose_from_tiers(tiers, shortage, limits, rank_of(policy), looks)


def choose_from_tiers(
    tiers: Iterable[Sequence[Candidate]],
    shortage: Shortage,
    limits: Limits,
    rank: Rank,
    looks: Looks | None = None,
) -> list[Leaving] | None:
    """The cheapest set of the first tiers that have one."""
    candidates: list[Candidate] = []
    looks = looks or Looks()
    for tier in tiers:
        candidates.extend(tier)
        if not tier or not could_be_enough(candidates, shortage, limits):
            continue
        leaving = cheapest(candidates, shortage, limits, rank, looks)
        if leaving is not None:
            return leaving
    return None


def n_state_bytes(unit: Unit) -> int:
    """Host memory that the unit takes while it is parked: its states, or buffers that it has if they are larger."""
    return sum(max(slot.state_bytes, slot.buffer_bytes) for slot in unit)


def candidate_of(ledger: Ledger, unit: Unit, shortage: Shortage, terms: Terms, *, is_counted: bool = True) -> Candidate:
    n_owned = unit[0].n_cells_owned if terms.splits_groups else n_owned_cells(ledger, unit)
    return Candidate(
        unit,
        n_owned,
        shortage.share_of(unit, n_owned),
        n_bytes=n_state_bytes(unit),
        can_park=is_parkable(ledger, unit),
        can_drop=terms.may_drop and is_droppable(unit),
        leaves_group=terms.splits_groups and unit[0].group_id is not None,
        is_counted=is_counted,
        order=min(slot.request_order for slot in unit),
    )


class Passers:
    """Who got cells although an earlier prompt waits for some (rule 6)."""

    def __init__(self, waiting: Sequence[SlotView]) -> None:
        self._waiting = waiting
        self._first_order = min((slot.request_order for slot in waiting), default=0)

    def has(self, unit: Unit) -> bool:
        return bool(self._waiting) and all(map(self._has_passed, unit))

    def _has_passed(self, slot: SlotView) -> bool:
        """It came later, in the line and to its slot, than one that still waits."""
        return slot.request_order > self._first_order and any(
            slot.request_order > waiter.request_order and slot.started_at_s >= waiter.started_at_s
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
    room_bytes = room_for_parks_bytes(ledger)
    if room_bytes is None:
        return []
    without_budget = replace(terms or Terms(), ignores_budget=True)
    victims = choose_victims(ledger, policy, shortage, without_budget, Looks(0))  # the largest first will do
    if not victims or victims[0].candidate.n_bytes <= room_bytes:
        return []
    return refusal(victims[0].candidate.unit)


def refusal(unit: Unit) -> list[RefusePark]:
    """The budget refuses this unit's park: said once while it stays in the pool."""
    return [] if unit[0].is_park_refusal_known else [RefusePark(unit[0].slot_id, Reason.BUDGET_TOO_SMALL)]


def frees_late(leaving: Leaving) -> bool:
    """Whether its cells come free only when the copy completes."""
    return not leaving.is_dropped and any(slot.frees_on_completion for slot in leaving.candidate.unit)


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


def _could_ever_help(ledger: Ledger, shortage: Shortage, terms: Terms) -> bool:
    """Whether it would be enough if all but the smallest resident left. A quick no: the usual answer while a prompt
    waits pass after pass."""
    slots = ledger.residents.values()
    waiter = terms.waiter
    may_all_leave = waiter is not None and any(slot.request_order > waiter.request_order for slot in slots)
    if len(slots) < 2 and not may_all_leave:
        return False
    n_shared = sum(group.n_cells_owned for group in ledger.groups.values())
    n_cells = ledger.n_resident_cells + ledger.n_step_cells + ledger.n_chunk_cells + ledger.n_beyond_cells + n_shared
    n_ahead = shortage.n_steps_ahead * ledger.n_decode_cells
    n_staying = 0 if may_all_leave else min(slot.n_cells_owned for slot in slots)
    return shortage.n_short - n_cells - n_ahead + n_staying <= 0
