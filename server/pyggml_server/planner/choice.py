"""The cheapest set of units whose leaving ends a shortage (rule 5). Pure search; knows nothing of why it is short.

Sets are compared in this order: fewest units that leave without their state, fewest units, the caller's rank. With up
to `N_EXACT` candidates every set is looked at, so the answer is the best one. With more, the largest are taken until it
is enough, and the last of them is exchanged for the cheapest that is enough in its place: a pass has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from pyggml_server.planner.shortage import Share, Shortage
from pyggml_server.planner.units import Unit

N_EXACT = 6


class Candidate(NamedTuple):
    """A unit that may leave.

    n_owned_cells  cells that come free; `share`: what goes from the shortage.
    n_bytes        host memory that it takes while it is parked.
    can_park       it may be parked; `can_drop`: it may leave without its state.
    leaves_group   it is one member of a group, which leaves by itself.
    is_counted     it counts among those of whom one has to stay.
    order          its request's place in order of arrival.
    """

    unit: Unit
    n_owned_cells: int
    share: Share
    n_bytes: int
    can_park: bool
    can_drop: bool
    leaves_group: bool
    is_counted: bool
    order: int


class Leaving(NamedTuple):
    """A candidate that was chosen, and whether it leaves without its state."""

    candidate: Candidate
    is_dropped: bool


class Limits(NamedTuple):
    """What bounds a choice: host memory in bytes (None: any), and how many of those counted may leave (None: all)."""

    room_bytes: int | None = None
    n_counted_most: int | None = None


#: Orders sets of one size: the least one is taken.
Rank = Callable[[Sequence[Candidate]], tuple[int, ...]]


def cheapest(candidates: Sequence[Candidate], shortage: Shortage, limits: Limits, rank: Rank) -> list[Leaving] | None:
    """Who leaves, the largest first; None when no set that may leave is enough."""
    if shortage.n_short <= 0:
        return []
    reach = Reach(shortage, limits)
    reach.add(candidates)
    if not reach.is_enough():
        return None
    search = _Search(candidates, shortage, limits, rank)
    return search.exact() if len(candidates) <= N_EXACT else search.bounded()


class Reach:
    """A quick no: whether all candidates together would not be enough, or all that host memory could hold at best."""

    def __init__(self, shortage: Shortage, limits: Limits) -> None:
        self._shortage, self._room_bytes = shortage, limits.room_bytes
        self._is_bounded = limits.room_bytes is not None
        self._n_cells = self._n_chunk_cells = self._n_ahead_cells = self._n_leaving = 0
        self._most_per_byte = 0.0

    def add(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            share = candidate.share
            if candidate.can_drop or not candidate.n_bytes:
                self._is_bounded = False
            elif self._room_bytes is not None:
                if candidate.n_bytes > self._room_bytes:
                    continue
                self._most_per_byte = max(self._most_per_byte, share.n_most_cells / candidate.n_bytes)
            self._n_leaving += len(candidate.unit)
            self._n_cells += share.n_cells
            self._n_chunk_cells += share.n_chunk_cells
            self._n_ahead_cells += share.n_ahead_cells

    def is_enough(self) -> bool:
        n_short = self._shortage.n_short_without(
            self._n_cells, self._n_chunk_cells, self._n_ahead_cells, self._n_leaving
        )
        if n_short > 0 or not self._is_bounded:
            return n_short <= 0
        n_waived = max(0, self._shortage.n_ahead_cells - self._n_ahead_cells)
        return self._most_per_byte * (self._room_bytes or 0) >= self._shortage.n_short - n_waived


class _Search:
    def __init__(self, candidates: Sequence[Candidate], shortage: Shortage, limits: Limits, rank: Rank) -> None:
        self._rank, self._shortage, self._limits = rank, shortage, limits
        self._candidates = sorted(candidates, key=lambda c: (-c.share.n_most_cells, c.order))

    def exact(self) -> list[Leaving] | None:
        """The best of all sets."""
        for n_drops in range(sum(c.can_drop for c in self._candidates) + 1):
            if n_drops <= 1 and (one := self._best_of_one(is_dropped=bool(n_drops))):
                return one
            for n_units in range(max(2, n_drops), len(self._candidates) + 1):
                sets = combinations(self._candidates, n_units)
                found = [way for chosen in sets if (way := self._way_out(chosen, n_drops))]
                if found:
                    return min(found, key=self._cost)
        return None

    def bounded(self) -> list[Leaving] | None:
        """A good one: of one unit the best, of several the largest, and for the last of them the cheapest."""
        if one := self._best_of_one(is_dropped=False):
            return one
        can_drop = any(c.can_drop for c in self._candidates)
        for order in (self._candidates, self._candidates[::-1]):  # small ones fill host memory with less waste
            if (chosen := self._one_after_another(order, can_drop=False)) is not None:
                return self._exchanged(chosen)
        if not can_drop:
            return None
        return self._best_of_one(is_dropped=True) or self._one_after_another(self._candidates, can_drop=True)

    def _best_of_one(self, *, is_dropped: bool) -> list[Leaving] | None:
        """One unit whose cells cover the shortage; else one whose leaving ends it, since its own step goes too."""
        enough = [
            candidate
            for candidate in self._candidates
            if (candidate.can_drop if is_dropped else candidate.can_park and self._fits(candidate.n_bytes))
            and self._is_enough((candidate,))
        ]
        covering = [c for c in enough if c.n_owned_cells >= self._shortage.n_short] or enough
        return [Leaving(min(covering, key=lambda c: self._rank((c,))), is_dropped)] if covering else None

    def _way_out(self, chosen: tuple[Candidate, ...], n_drops: int) -> list[Leaving] | None:
        """These with so many of them dropped, the fewest cells; None if they are not enough, or do not fit."""
        if not self._is_enough(chosen):
            return None
        best: list[Leaving] | None = None
        for dropped in combinations(chosen, n_drops):
            kept = [c for c in chosen if c not in dropped]
            may = all(c.can_drop for c in dropped) and all(c.can_park for c in kept)
            if may and self._fits(sum(c.n_bytes for c in kept)):
                way = [Leaving(c, c in dropped) for c in chosen]
                best = way if best is None or self._cost(way) < self._cost(best) else best
        return best

    def _cost(self, leaving: list[Leaving]) -> tuple[tuple[int, ...], int]:
        n_dropped_cells = sum(one.candidate.n_owned_cells for one in leaving if one.is_dropped)
        return (self._rank([one.candidate for one in leaving]), n_dropped_cells)

    def _one_after_another(self, order: Sequence[Candidate], *, can_drop: bool) -> list[Leaving] | None:
        """In this order until it is enough; those who are not needed after all stay."""
        chosen: list[Leaving] = []
        n_bytes = n_counted = 0
        for candidate in order:
            n_counted += candidate.is_counted
            if self._limits.n_counted_most is not None and n_counted > self._limits.n_counted_most:
                n_counted -= candidate.is_counted
                continue
            if candidate.can_park and self._fits(n_bytes + candidate.n_bytes):
                n_bytes += candidate.n_bytes
                chosen.append(Leaving(candidate, False))
            elif can_drop and candidate.can_drop:
                chosen.append(Leaving(candidate, True))
            else:
                n_counted -= candidate.is_counted
                continue
            if self._is_enough([one.candidate for one in chosen]):
                return self._without_needless(chosen)
        return None

    def _without_needless(self, chosen: list[Leaving]) -> list[Leaving]:
        for one in sorted(chosen, key=lambda one: (not one.is_dropped, -one.candidate.n_owned_cells)):
            rest = [other for other in chosen if other is not one]
            if rest and self._is_enough([other.candidate for other in rest]):
                chosen = rest
        return sorted(chosen, key=lambda one: (-one.candidate.share.n_most_cells, one.candidate.order))

    def _exchanged(self, chosen: list[Leaving]) -> list[Leaving]:
        """The smallest of them exchanged for the first by rank that is enough with the others."""
        *others, last = [one.candidate for one in chosen]
        n_bytes = sum(c.n_bytes for c in others)
        will_do = [
            candidate
            for candidate in self._candidates
            if candidate not in others
            and candidate.can_park
            and self._fits(n_bytes + candidate.n_bytes)
            and self._is_enough([*others, candidate])
        ]
        best = min(will_do, key=lambda c: self._rank([*others, c]), default=last)
        return [*chosen[:-1], Leaving(best, False)]

    def _is_enough(self, chosen: Sequence[Candidate]) -> bool:
        n_cells = n_chunk_cells = n_ahead_cells = n_counted = n_leaving = 0
        for candidate in chosen:
            share = candidate.share
            n_cells += share.n_cells
            n_chunk_cells += share.n_chunk_cells
            n_ahead_cells += share.n_ahead_cells
            n_counted += candidate.is_counted
            n_leaving += len(candidate.unit)
        n_most = self._limits.n_counted_most
        return self._shortage.n_short_without(n_cells, n_chunk_cells, n_ahead_cells, n_leaving) <= 0 and (
            n_most is None or n_counted <= n_most
        )

    def _fits(self, n_bytes: int) -> bool:
        return self._limits.room_bytes is None or n_bytes <= self._limits.room_bytes
