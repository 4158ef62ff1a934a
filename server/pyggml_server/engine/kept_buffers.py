"""Page-locked buffers that nobody holds and that are kept for the next park. Engine thread.

Page-locking takes long and stops everybody, and so does its end. So a buffer that is given back is free in the books at
once, but stays page-locked, for as long as all buffers together fit `--preempt-ram`.
"""

from __future__ import annotations

from typing import Protocol

# A kept buffer is charged whole. One that is larger than this part of the limit is used again only for a state of at
# least this part of its size: else it would keep others from being parked.
SMALL_SHARE = 1 / 8
LEAST_USE = 1 / 2
# A buffer that has to grow grows by this much more than its state needs: a chat is longer at its next park.
HEAD_ROOM = 1.5


class KeptBuffer(Protocol):
    """The buffer of one slot."""

    @property
    def size_bytes(self) -> int:
        """Host memory that it takes, held or not."""

    @property
    def is_held(self) -> bool:
        """Whether a task holds it: it counts as `preempt_ram_bytes`."""

    def free(self) -> None:
        """Really give its memory back; only if it is not held."""


class Copying(Protocol):
    """A transfer that copies at once, into memory that nobody keeps."""

    @property
    def buffer_bytes(self) -> int:
        """Host memory that it holds."""


class HeldElsewhere:
    """What a slot holds that parks synchronously now: none of it is kept, all of it counts."""

    def __init__(self, transfer: Copying) -> None:
        self._transfer = transfer

    @property
    def size_bytes(self) -> int:
        return self._transfer.buffer_bytes

    @property
    def is_held(self) -> bool:
        return self._transfer.buffer_bytes > 0

    def free(self) -> None:
        """There is nothing to give back."""


class KeptBuffers:
    """All buffers of one model load, within one limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._buffers: list[KeptBuffer] = []

    def add(self, buffer: KeptBuffer) -> None:
        """One more slot's buffer, empty as yet."""
        self._buffers.append(buffer)

    def remove(self, buffer: KeptBuffer) -> None:
        """Its slot gives it up for good."""
        self._buffers.remove(buffer)

    def make_room(self, buffer: KeptBuffer, n_bytes: int) -> int:
        """Before `buffer` takes `n_bytes`: free what is kept and in the way, its own memory too if it does not suit.

        Returns the size that the buffer should have.
        """
        others = [other for other in self._buffers if other is not buffer]
        held_bytes = sum(other.size_bytes for other in others if other.is_held)
        if not buffer.is_held and not self._suits(buffer.size_bytes, n_bytes, held_bytes):
            buffer.free()
        over_bytes = sum(other.size_bytes for other in others) + max(buffer.size_bytes, n_bytes) - self._limit_bytes
        for other in sorted(others, key=lambda other: -other.size_bytes):
            if over_bytes > 0 and not other.is_held:
                over_bytes -= other.size_bytes
                other.free()
        if buffer.size_bytes >= n_bytes:
            return buffer.size_bytes
        left_bytes = self._limit_bytes - sum(other.size_bytes for other in others)
        return max(n_bytes, min(int(HEAD_ROOM * n_bytes), left_bytes))

    def _suits(self, kept_bytes: int, n_bytes: int, held_bytes: int) -> bool:
        is_wasted = kept_bytes > SMALL_SHARE * self._limit_bytes and n_bytes < LEAST_USE * kept_bytes
        return kept_bytes >= n_bytes and not is_wasted and held_bytes + kept_bytes <= self._limit_bytes
