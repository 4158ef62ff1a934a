"""Whom to park (rule 5). Pure choice; the caller orders the parks.

Of the units that may be parked and fit the host-memory budget:
1. one whose owned cells alone cover the shortage, by policy;
2. else one whose leaving ends the shortage because its own step goes too (a prompt that wants a large chunk);
3. else the one with the most owned cells, and then again: no single park is enough, so as few as possible.
The last resident is never parked, nor one that owns no cells. If all together are not enough, nobody is parked: a
park that does not help is only a copy.

With `may_drop` those that the budget (or an allocation) refuses leave too: without their state (rule 8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from pyggml_server.planner.budget import give_backs_for_park
from pyggml_server.planner.effects import apply_completed, apply_to
from pyggml_server.planner.plan import Action, Park, Reason, Recompute, RefusePark
from pyggml_server.planner.policy import Policy, VictimPolicy
from pyggml_server.planner.units import Unit, is_droppable, is_parkable, n_owned_cells, resident_units
from pyggml_server.planner.view import View

ShortageOf = Callable[[View], int]


def choose_victims(
    view: View, policy: Policy, short_of: ShortageOf, newcomers: Collection[int] = (), *, may_drop: bool = False
) -> list[Unit] | None:
    """The units to park, in order, until `short_of` is at most 0; None when parking everybody allowed is not enough.

    `newcomers` are prompts that this plan lets start: they do not make anybody else less than the last resident.
    """
    chosen: list[Unit] = []
    while short_of(view) > 0:
        unit = next_victim(view, policy, short_of, newcomers, may_drop=may_drop)
        if unit is None:
            return None
        chosen.append(unit)
        view = without(view, unit)
    return chosen


def next_victim(
    view: View, policy: Policy, short_of: ShortageOf, newcomers: Collection[int] = (), *, may_drop: bool = False
) -> Unit | None:
    """The unit to park now, or None when nobody may be parked."""
    residents = [unit for unit in resident_units(view) if unit[0].slot_id not in newcomers]
    if len(residents) < 2:
        return None
    free = [
        unit
        for unit in residents
        if n_owned_cells(view, unit) and (_may_park(view, unit) or (may_drop and is_droppable(unit)))
    ]
    n_short = short_of(view)
    covering = [unit for unit in free if n_owned_cells(view, unit) >= n_short]
    ending = covering or [unit for unit in free if short_of(without(view, unit)) <= 0]
    if ending:
        return min(ending, key=lambda unit: _rank(view, unit, policy))
    return min(free, key=lambda unit: (-n_owned_cells(view, unit), _rank(view, unit, policy)), default=None)


def park_actions(view: View, unit: Unit, reason: Reason, for_request: int | None = None) -> list[Action] | None:
    """The orders that park this unit, idle buffers given back first; None when the budget refuses it."""
    give_backs = give_backs_for_park(view, unit)
    if give_backs is None:
        return None
    return [*give_backs, *(Park(slot.slot_id, reason, for_request) for slot in unit)]


def leave_actions(view: View, unit: Unit, reason: Reason) -> list[Action]:
    """The orders that take this unit out of the pool: with its state if that can be kept, else without."""
    parks = park_actions(view, unit, reason) if is_parkable(view, unit) else None
    return parks if parks is not None else [Recompute(slot.slot_id, reason) for slot in unit]


def refusals(view: View, policy: Policy, short_of: ShortageOf, newcomers: Collection[int] = ()) -> list[RefusePark]:
    """The budget refuses the park of the unit that would be the first victim if it did not."""
    victims = choose_victims(replace(view, ram_limit_bytes=None), policy, short_of, newcomers)
    return refusal(victims[0]) if victims and give_backs_for_park(view, victims[0]) is None else []


def refusal(unit: Unit) -> list[RefusePark]:
    """The budget refuses this unit's park: said once while it stays in the pool."""
    return [] if unit[0].is_park_refusal_known else [RefusePark(unit[0].slot_id, Reason.BUDGET_TOO_SMALL)]


def frees_late(unit: Unit) -> bool:
    """Whether its cells come free only when the copy completes."""
    return any(slot.frees_on_completion for slot in unit)


def without(view: View, unit: Unit) -> View:
    """The view once this unit has left, and its park, if it is one, has completed."""
    for action in leave_actions(view, unit, Reason.STEP_SHORT):
        view = apply_completed(view, action) if isinstance(action, Park) else apply_to(view, action)
    return view


def _may_park(view: View, unit: Unit) -> bool:
    return is_parkable(view, unit) and give_backs_for_park(view, unit) is not None


def _rank(view: View, unit: Unit, policy: Policy) -> tuple[int, int]:
    """Smaller goes first; between equals the youngest, who has waited least."""
    order = min(slot.request_order for slot in unit)
    match policy.victim:
        case VictimPolicy.SMALLEST:
            return (n_owned_cells(view, unit), -order)
        case VictimPolicy.YOUNGEST:
            return (-order, 0)
        case VictimPolicy.OLDEST:
            return (order, 0)
