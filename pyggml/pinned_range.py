"""A part of a pool of page-locked memory, from when it is taken until it is given back. Any thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pyggml.errors import ClosedError, InvalidArgumentError


class PinnedRange:
    """Memory that stays page-locked until `give_back`. Made by `PinnedPool.take`."""

    def __init__(self, memory: npt.NDArray[np.uint8], piece_bytes: int, keep: Callable[[int], None]):
        self._memory = memory
        self._keep = keep  # so many of the first bytes, 0 being none
        self._is_held = True
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

        Raises ClosedError after `give_back`, InvalidArgumentError for less than one byte or more than there are.
        """
        if not 1 <= n_bytes <= len(self.view):
            raise InvalidArgumentError(f"a range of {self.n_bytes} bytes cannot shrink to {n_bytes}")
        if n_bytes < self.n_bytes:
            self._keep(n_bytes)
            self._memory = self._memory[:n_bytes]
            self.n_bytes = n_bytes

    def give_back(self) -> None:
        """Makes room for others; costs nothing. No copy may use the range any more. A second call does nothing."""
        if self._is_held:
            self._keep(0)
            self._is_held = False
