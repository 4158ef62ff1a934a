"""A pool as `pyggml.PinnedPool` is, without memory: what was asked of it is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyggml.first_fit import FirstFit


@dataclass
class FakeRange:
    """A part of it."""

    pool: FakePinnedPool
    begin: int
    n_bytes: int

    def shrink(self, n_bytes: int) -> None:
        self.pool.ranges.shrink(self.begin, n_bytes)
        self.n_bytes = n_bytes

    def give_back(self) -> None:
        self.pool.ranges.give_back(self.begin)


@dataclass
class FakePinnedPool:
    """`refused_above_bytes`: the device locks no more than that."""

    limit_bytes: int
    piece_bytes: int
    refused_above_bytes: int | None = None
    n_pinned: int = 0
    n_wanted: int = 0
    n_filled: int = 0
    is_refused: bool = False
    is_closed: bool = False
    ranges: FirstFit = field(default_factory=FirstFit)

    @property
    def pinned_bytes(self) -> int:
        return self.n_pinned * self.piece_bytes

    @property
    def held_bytes(self) -> int:
        return self.ranges.held_bytes

    @property
    def can_grow(self) -> bool:
        return not self.is_refused and (self.n_pinned + 1) * self.piece_bytes <= self.limit_bytes

    def end_for(self, n_bytes: int) -> int:
        return self.ranges.end_for(n_bytes)

    def grow(self, n_bytes: int) -> None:
        self.n_wanted = max(self.n_wanted, min(-(-n_bytes // self.piece_bytes), self.limit_bytes // self.piece_bytes))

    def advance(self) -> bool:
        return self._lock()

    def fill(self, n_bytes: int) -> int:
        self.n_filled += 1
        self.grow(n_bytes)
        while self._lock():
            pass
        return self.pinned_bytes

    def take(self, n_bytes: int) -> FakeRange | None:
        begin = self.ranges.take(n_bytes, self.pinned_bytes)
        return None if begin is None else FakeRange(self, begin, n_bytes)

    def trim(self, n_bytes: int) -> None:
        self.n_wanted = self.n_pinned = -(-max(n_bytes, self.ranges.last_end) // self.piece_bytes)

    def close(self) -> None:
        assert len(self.ranges) == 0
        self.is_closed = True

    def _lock(self) -> bool:
        if self.is_refused or self.n_pinned >= self.n_wanted:
            return False
        limit = self.refused_above_bytes
        self.is_refused = limit is not None and self.pinned_bytes + self.piece_bytes > limit
        self.n_pinned += not self.is_refused
        return not self.is_refused
