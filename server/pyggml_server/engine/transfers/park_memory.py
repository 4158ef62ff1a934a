"""Pinned memory for the states of one model load: a pool that grows ahead of its need. Engine thread.

Pinning stops all use of the device, so no park waits for it. A first part is pinned at load, before the port opens,
then one piece a pass at most (16 MiB, 0.6 ms), ahead of what the running slots would need. Only where the next step
itself has no room its pieces are pinned at once, since no slot could decode meanwhile anyway. What is given back is
free in the books at once and stays pinned; unpinning waits until no slot runs.

Pinned and pageable memory together keep to `--preempt-ram`. The one exception lasts until no slot runs: a state that
was saved to pageable memory because the gaps between the others were too small for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyggml_server.engine.transfers.transfer import TransferRefusedError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import PinnedPool, PinnedRange

# A pool has so many pieces at least, and pieces so large at most.
LEAST_PIECES = 16
LARGEST_PIECE_BYTES = 16 * 1024 * 1024


class NotPinnedYetError(TransferRefusedError):
    """The pool will have a range for this state in a few passes. Nothing was copied."""


class NoGapError(TransferRefusedError):
    """The pool has no range for this state until another one is given back. Nothing was copied."""


class PageableBufferError(TransferRefusedError):
    """No more memory can be pinned, and what is locked is too little for this state. Nothing was copied."""


class Copying(Protocol):
    """A transfer that copies at once, into pageable memory."""

    @property
    def buffer_bytes(self) -> int:
        """Host memory that it holds."""


def piece_bytes(limit_bytes: int) -> int:
    """What a pool of this limit locks at a time: a power of two, and a small part of the limit."""
    return min(LARGEST_PIECE_BYTES, 1 << max(12, (limit_bytes // LEAST_PIECES).bit_length() - 1))


class ParkMemory:
    """The pool of one model load. Without a pool (copies are synchronous) nothing is locked, and nothing to do."""

    def __init__(self, pool: PinnedPool | None = None) -> None:
        self._pool = pool
        self._pageable: list[Copying] = []
        self._most_pageable_bytes = 0

    @property
    def pinned_bytes(self) -> int:
        """Memory that is pinned now, held or not."""
        return 0 if self._pool is None else self._pool.pinned_bytes

    def add_pageable(self, transfer: Copying) -> None:
        """One more that keeps states in pageable memory: what it holds leaves the pool that much less to grow."""
        self._pageable.append(transfer)

    def keep_ahead(self, largest_bytes: int, all_bytes: int) -> None:
        """Between two decodes: have room for a park of the largest running state, and for all of them; lock a piece.

        Blocks for that piece.
        """
        pool = self._pool
        if pool is not None and pool.can_grow:
            ends = [pool.held_bytes + all_bytes, pool.end_for(largest_bytes)]
            pool.grow(min(max(ends), self._ceiling_bytes(pool)))
            pool.advance()

    def offer(self, n_bytes: int) -> PinnedRange | None:
        """A range of what is locked already; None where there is none."""
        return None if self._pool is None or n_bytes < 1 else self._pool.take(n_bytes)

    def take(self, n_bytes: int, *, may_block: bool = False) -> PinnedRange:
        """A range for a state. With `may_block` pins what is missing at once, and blocks for it.

        Raises NotPinnedYetError, NoGapError, PageableBufferError.
        """
        pool = self._pool
        if pool is None:
            raise PageableBufferError("there is no pinned memory")
        part = pool.take(n_bytes)
        if part is None and pool.can_grow and pool.end_for(n_bytes) <= self._ceiling_bytes(pool):
            if not may_block:
                pool.grow(pool.end_for(n_bytes))
                raise NotPinnedYetError(f"the pinned memory is still growing: {pool.pinned_bytes} bytes")
            pool.fill(pool.end_for(n_bytes))
            part = pool.take(n_bytes)
        if part is not None:
            return part
        if n_bytes > pool.pinned_bytes and not pool.can_grow:
            raise PageableBufferError(f"a state of {n_bytes} bytes, but only {pool.pinned_bytes} can be pinned")
        raise NoGapError(f"no gap of {n_bytes} bytes in {pool.pinned_bytes} bytes of pinned memory")

    def rest(self) -> None:
        """No slot runs: unpin what is too much, given the pageable memory that was needed. Blocks if there is any."""
        pool = self._pool
        if pool is not None and pool.pinned_bytes > (n_kept := self._ceiling_bytes(pool)):
            pool.trim(n_kept)

    def close(self) -> None:
        """Unlock all. Blocks; every transfer has been closed before. Idempotent."""
        if self._pool is not None:
            self._pool.close()

    def _ceiling_bytes(self, pool: PinnedPool) -> int:
        """What may be pinned, given the most that was in pageable memory at once so far. In whole pieces."""
        n_pageable = sum(transfer.buffer_bytes for transfer in self._pageable)
        self._most_pageable_bytes = max(self._most_pageable_bytes, n_pageable)
        return max(0, pool.limit_bytes - self._most_pageable_bytes) // pool.piece_bytes * pool.piece_bytes
