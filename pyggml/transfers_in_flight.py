"""Which sequences of a context have an asynchronous copy in flight, so that no call takes their cells away.

On the context's thread. Owns no copy: each belongs to its Transfer.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from pyggml.errors import TransferInFlightError


class Copy(Protocol):
    """A transfer, as far as this module needs it."""

    def done(self) -> bool:
        """Whether the copy has ended. Never blocks."""

    def wait(self) -> None:
        """Blocks until it has."""


class TransfersInFlight:
    """Copies by the sequence whose cells they read or write; those that have ended are dropped when it is read."""

    def __init__(self) -> None:
        self._by_sequence: dict[int, list[weakref.ref[Copy]]] = {}

    def add(self, seq_id: int, copy: Copy) -> None:
        """A copy of this sequence was issued. Whatever the same transfer copied before has ended."""
        self.remove(copy)
        self._by_sequence.setdefault(seq_id, []).append(weakref.ref(copy))

    def remove(self, copy: Copy) -> None:
        """What this transfer issued last, if anything, reads and writes no sequence's cells."""
        for former in [*self._by_sequence]:
            self._by_sequence[former] = [ref for ref in self._by_sequence[former] if ref() is not copy]

    def check_none(self, seq_id: int | None, what: str) -> None:
        """Raises TransferInFlightError if the sequence (None: any) has a copy in flight and so cannot be `what`."""
        for busy in [*self._by_sequence] if seq_id is None else [seq_id]:
            if self._live(busy):
                raise TransferInFlightError(
                    f"sequence {busy} has a copy in flight and cannot be {what}: wait for its transfer first"
                )

    def wait_for_all(self) -> None:
        """Blocks until no copy is in flight."""
        for seq_id in [*self._by_sequence]:
            for copy in self._live(seq_id):
                copy.wait()

    def _live(self, seq_id: int) -> list[Copy]:
        refs = self._by_sequence.get(seq_id, ())
        live = [copy for ref in refs if (copy := ref()) is not None and not copy.done()]
        if live:
            self._by_sequence[seq_id] = [weakref.ref(copy) for copy in live]
        else:
            self._by_sequence.pop(seq_id, None)
        return live
