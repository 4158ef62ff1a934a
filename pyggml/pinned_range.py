"""A part of a pool of pinned memory, from when it is taken until it is given back. Any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import index

import numpy as np
import numpy.typing as npt

from pyggml.errors import ClosedError, InvalidArgumentError


class PinnedRange:
    """Memory that stays pinned until `give_back`. Made by `PinnedPool.take`."""

    def __init__(self, memory: npt.NDArray[np.uint8], piece_bytes: int, keep: Callable[[int], None]):
        self._memory = memory
        self._keep = keep  # so many of the first bytes, 0 being none
        self._is_held = True
        self._is_lent = False
        # Reentrant: a finalizer that gives this range back can run at any allocation inside the lock.
        self._lock = threading.RLock()
        self.n_bytes = len(memory)
        self.piece_bytes = piece_bytes
        """No copy of a device may cross an address that is a multiple of this."""

    @property
    def view(self) -> npt.NDArray[np.uint8]:
        """The memory, as uint8[n_bytes]. Raises ClosedError after `give_back`."""
        if not self._is_held:
            raise ClosedError("this range was given back: take another one")
        return self._memory

    @property
    def address(self) -> int:
        """Of the first byte. Raises ClosedError after `give_back`."""
        return int(self.view.ctypes.data)

    def shrink(self, n_bytes: int) -> None:
        """Gives back all but the first `n_bytes`; costs nothing. No copy may use what is behind them any more.

        Raises ClosedError after `give_back`, InvalidArgumentError for less than one byte or more than there are,
        BufferError while a transfer uses it (`Transfer.shrink_buffer`).
        """
        with self._lock:
            self._check_not_lent("shrunk")
            self._shrink(n_bytes)

    def give_back(self) -> None:
        """Makes room for others; costs nothing. No copy may use the range any more. A second call does nothing.

        Raises BufferError while a transfer uses it, which gives it back itself.
        """
        with self._lock:
            self._check_not_lent("given back")
            self._give_back()

    def lend(self) -> LentRange:
        """Leaves the range to one user, a transfer. Until that ends its use, nobody can shrink it or give it back.

        Raises ClosedError after `give_back`, BufferError while it is in use.
        """
        with self._lock:
            self._check_not_lent("used")
            lent = LentRange(self, self.address)
            self._is_lent = True
            return lent

    def _check_not_lent(self, what: str) -> None:
        if self._is_lent:
            raise BufferError(f"a transfer uses this range, so it cannot be {what}: release that one's buffer first")

    def _shrink(self, n_bytes: int) -> None:
        n_kept = index(n_bytes)
        if not 1 <= n_kept <= len(self.view):
            raise InvalidArgumentError(f"a range of {self.n_bytes} bytes cannot shrink to {n_kept}")
        if n_kept < self.n_bytes:
            self._keep(n_kept)
            self._memory = self._memory[:n_kept]
            self.n_bytes = n_kept

    def _give_back(self) -> None:
        if self._is_held:
            self._is_held = False
            self._keep(0)


class LentRange:
    """A range as its only user has it. Made by `PinnedRange.lend`; one call of `give_back` or `end` ends the use."""

    def __init__(self, part: PinnedRange, address: int):
        self._part = part
        self.address = address
        self.n_bytes = part.n_bytes
        self.piece_bytes = part.piece_bytes

    def shrink(self, n_bytes: int) -> None:
        """As `PinnedRange.shrink`."""
        with self._part._lock:
            self._part._shrink(n_bytes)
            self.n_bytes = self._part.n_bytes

    def give_back(self) -> None:
        """As `PinnedRange.give_back`."""
        with self._part._lock:
            self._part._is_lent = False
            self._part._give_back()

    def end(self) -> None:
        """Leaves the range to its owner."""
        with self._part._lock:
            self._part._is_lent = False
