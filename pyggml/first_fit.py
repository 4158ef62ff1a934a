"""Which ranges of a growing stretch of bytes are taken: the first gap that is large enough. Numbers, one thread."""

from __future__ import annotations

import bisect

ALIGNMENT_BYTES = 64


class FirstFit:
    """Ranges in [0, end). The owner of the bytes says where they end."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: dict[int, int] = {}
        self.held_bytes = 0
        """Of all ranges that are taken."""

    @property
    def last_end(self) -> int:
        """Where the last range ends; 0 without any."""
        return self._ends[self._begins[-1]] if self._begins else 0

    def __len__(self) -> int:
        return len(self._begins)

    def take(self, n_bytes: int, end: int) -> int | None:
        """The begin of a new range of `n_bytes`, aligned to 64 bytes; None if no gap before `end` is large enough."""
        begin = self._first_gap(n_bytes)
        if begin + n_bytes > end:
            return None
        bisect.insort(self._begins, begin)
        self._ends[begin] = begin + n_bytes
        self.held_bytes += n_bytes
        return begin

    def end_for(self, n_bytes: int) -> int:
        """The least `end` for which `take` would find a gap now."""
        return self._first_gap(n_bytes) + n_bytes

    def give_back(self, begin: int) -> None:
        """Frees the range that begins there. Raises KeyError if there is none."""
        self.held_bytes -= self._ends.pop(begin) - begin
        self._begins.remove(begin)

    def shrink(self, begin: int, n_bytes: int) -> None:
        """Keeps the first `n_bytes` of the range that begins there. Raises KeyError if there is none."""
        self.held_bytes -= self._ends[begin] - (begin + n_bytes)
        self._ends[begin] = begin + n_bytes

    def _first_gap(self, n_bytes: int) -> int:
        """Where the first gap of `n_bytes` begins; the last one has no end."""
        begin = 0
        for other in self._begins:
            if begin + n_bytes <= other:
                break
            begin = -(-self._ends[other] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return begin
