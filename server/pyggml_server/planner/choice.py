"""The cheapest set of units whose leaving ends a shortage (rule 5). Pure search; knows nothing of why it is short.

Sets are compared in this order: fewest units that leave without their state, fewest units, the caller's rank. With up
to eight candidates every set is looked at, so the answer is the best one. With more, at most `N_LOOKS_MOST` sets are,
those of the largest units first, so that a pass has a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyggml_server.planner.shortage import Share, Shortage
from pyggml_server.planner.units import Unit

N_LOOKS_MOST = 400


@dataclass(frozen=True, slots=True)
class Candidate:
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


@dataclass(frozen=True, slots=True)
class Leaving:
    """A candidate that was chosen, and whether it leaves without its state."""

    candidate: Candidate
    is_dropped: bool


#: Orders sets of one size: the least one is taken.
Rank = Callable[[Sequence[Candidate]], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a choice: host memory in bytes (None: any), and how many of those counted may leave (None: all)."""

    room_bytes: int | None = None
    n_counted_most: int | None = None


@dataclass(slots=True)
class Looks:
    """How many sets may still be looked at, so that a pass has a bound."""

    n_left: int = N_LOOKS_MOST


def cheapest(
    candidates: Sequence[Candidate], shortage: Shortage, limits: Limits, rank: Rank, looks: Looks | None = None
) -> list[Leaving] | None:
    """Who leaves, the largest first; None when no set that may leave is enough."""
    if shortage.n_short <= 0:
        return []
    if not could_be_enough(candidates, shortage, limits):
        return None
    return _Search(candidates, shortage, limits, rank, looks or Looks()).best()


def could_be_enough(candidates: Iterable[Candidate], shortage: Shortage, limits: Limits) -> bool:
    """A quick no where all together would not be enough, or all that host memory could hold at best."""
    room_bytes = limits.room_bytes
    n_cells = n_chunk_cells = n_ahead_cells = n_leaving = 0
    most_per_byte, is_bounded = 0.0, room_bytes is not None
    for candidate in candidates:
        share = candidate.share
        if candidate.can_drop or not candidate.n_bytes:
            is_bounded = False
        elif room_bytes is not None:
            if candidate.n_bytes > room_bytes:
                continue
            most_per_byte = max(most_per_byte, share.n_most_cells / candidate.n_bytes)
        n_leaving += 1
        n_cells += share.n_cells
        n_chunk_cells += share.n_chunk_cells
        n_ahead_cells += share.n_ahead_cells
    if shortage.n_short_without(n_cells, n_chunk_cells, n_ahead_cells, n_leaving) > 0:
        return False
    n_waived = max(0, shortage.n_ahead_cells - n_ahead_cells)
    return not is_bounded or most_per_byte * (room_bytes or 0) >= shortage.n_short - n_waived


class _Search:
    def __init__(
        self, candidates: Sequence[Candidate], shortage: Shortage, limits: Limits, rank: Rank, looks: Looks
    ) -> None:
        self._rank, self._shortage, self._limits = rank, shortage, limits
        self._candidates = sorted(candidates, key=lambda c: (-c.share.n_most_cells, rank((c,))))
        gains = [c.share.n_most_cells for c in self._candidates]
        self._n_gained_before = [sum(gains[:i]) for i in range(len(gains) + 1)]
        #: What no share holds: the steps ahead of who comes in, waived once everybody has left.
        self._n_waived = max(0, shortage.n_ahead_cells - sum(c.share.n_ahead_cells for c in candidates))
        self._looks = looks
        self._best: list[Leaving] | None = None
        self._best_key: tuple[tuple[int, ...], int] = ((), 0)

    def best(self) -> list[Leaving] | None:
        n_all = len(self._candidates)
        for n_drops in range(sum(c.can_drop for c in self._candidates) + 1):
            if one := self._best_of_one(n_drops):
                return one
            for n_units in range(max(2, n_drops), n_all + 1):
                if self._is_within_reach([], 0, n_units):
                    self._extend([], 0, n_units, n_drops, self._limits.room_bytes)
                if self._best is not None:
                    return self._best
        return self._largest_first() if self._looks.n_left <= 0 else None

    def _best_of_one(self, n_drops: int) -> list[Leaving] | None:
        """One unit whose cells cover the shortage; else one whose leaving ends it, since its own step goes too."""
        if n_drops > 1:
            return None
        enough = [
            candidate
            for candidate in self._candidates
            if (candidate.can_drop if n_drops else candidate.can_park and self._fits(candidate.n_bytes))
            and self._may_leave(int(candidate.is_counted))
            and self._shortage.without(candidate.share) <= 0
        ]
        covering = [c for c in enough if c.n_owned_cells >= self._shortage.n_short] or enough
        return [Leaving(min(covering, key=lambda c: self._rank((c,))), bool(n_drops))] if covering else None

    def _extend(self, chosen: list[Leaving], start: int, n_more: int, n_drops: int, room_bytes: int | None) -> None:
        """Look at every set of these and `n_more` of the candidates from `start` on, `n_drops` of them dropped."""
        if n_more == 0:
            self._look_at(chosen)
            return
        for i in range(start, len(self._candidates) - n_more + 1):
            if self._looks.n_left <= 0 or not self._is_within_reach(chosen, i, n_more):
                return
            candidate = self._candidates[i]
            n_left_bytes = None if room_bytes is None else room_bytes - candidate.n_bytes
            if candidate.can_park and n_more > n_drops and (n_left_bytes is None or n_left_bytes >= 0):
                self._extend([*chosen, Leaving(candidate, False)], i + 1, n_more - 1, n_drops, n_left_bytes)
            if candidate.can_drop and n_drops:
                self._extend([*chosen, Leaving(candidate, True)], i + 1, n_more - 1, n_drops - 1, room_bytes)

    def _look_at(self, leaving: list[Leaving]) -> None:
        self._looks.n_left -= 1
        if not self._is_enough(leaving):
            return
        n_dropped_cells = sum(one.candidate.n_owned_cells for one in leaving if one.is_dropped)
        key = (self._rank([one.candidate for one in leaving]), n_dropped_cells)
        if self._best is None or key < self._best_key:
            self._best, self._best_key = leaving, key

    def _largest_first(self) -> list[Leaving] | None:
        """Where there are too many sets to look at: the largest that fits, and again; who is not needed stays."""
        chosen: list[Leaving] = []
        room_bytes = self._limits.room_bytes
        for candidate in self._candidates:
            if not self._may_leave(sum(one.candidate.is_counted for one in chosen) + candidate.is_counted):
                continue
            fits = candidate.can_park and (room_bytes is None or candidate.n_bytes <= room_bytes)
            if fits and room_bytes is not None:
                room_bytes -= candidate.n_bytes
            if fits or candidate.can_drop:
                chosen.append(Leaving(candidate, is_dropped=not fits))
            if self._is_enough(chosen):
                return self._without_needless(chosen)
        return None

    def _without_needless(self, chosen: list[Leaving]) -> list[Leaving]:
        for one in sorted(chosen, key=lambda one: (not one.is_dropped, -one.candidate.n_owned_cells)):
            rest = [other for other in chosen if other is not one]
            if self._is_enough(rest):
                chosen = rest
        return chosen

    def _is_enough(self, leaving: Sequence[Leaving]) -> bool:
        shares = [one.candidate.share for one in leaving]
        n_short = self._shortage.n_short_without(
            sum(share.n_cells for share in shares),
            sum(share.n_chunk_cells for share in shares),
            sum(share.n_ahead_cells for share in shares),
            len(shares),
        )
        return n_short <= 0 and self._may_leave(sum(one.candidate.is_counted for one in leaving))

    def _is_within_reach(self, chosen: Sequence[Leaving], start: int, n_more: int) -> bool:
        """Whether these and the `n_more` largest from `start` on could be enough."""
        if start + n_more > len(self._candidates):
            return False
        n_gained = self._n_gained_before[start + n_more] - self._n_gained_before[start]
        n_gained += sum(one.candidate.share.n_most_cells for one in chosen)
        return self._shortage.n_short - self._n_waived <= n_gained

    def _fits(self, n_bytes: int) -> bool:
        return self._limits.room_bytes is None or n_bytes <= self._limits.room_bytes

    def _may_leave(self, n_counted: int) -> bool:
        return self._limits.n_counted_most is None or n_counted <= self._limits.n_counted_most
