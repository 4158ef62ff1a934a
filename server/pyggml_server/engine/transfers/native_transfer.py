"""The bindings' `Transfer`, as far as the engine uses it: for parks, and to lend its buffer. Engine thread.

Protocols, so that tests can give the engine transfers without a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pyggml_server.native.runtime import PinnedRange


class NativeTransfer(Protocol):
    """What both uses have in common."""

    def use(self, part: PinnedRange) -> None:
        """Take a range as the buffer, to be given back when it is released."""

    def release_buffer(self) -> None:
        """Wait, then give back buffer and state."""

    def leave_buffer(self) -> None:
        """The same, while views of it are alive: it is given back with the last of them."""

    def save(self, seq_id: int, n_bytes: int | None = None) -> int:
        """Issue the copy out."""

    @property
    def freed_on_issue(self) -> bool:
        """Whether the last save had no more need of the sequence's cells once it was issued."""

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """A view of what was saved."""

    def blank(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """A writable view, for what shall be restored."""

    def restore(self, seq_id: int) -> int:
        """Issue the copy in."""

    def done(self) -> bool:
        """Whether the last issued copy has ended."""

    def wait(self) -> None:
        """Block until it has."""

    def close(self) -> None:
        """Wait, then free everything, but for views that are alive."""


class ParkingTransfer(NativeTransfer, Protocol):
    """As much of it as `AsyncTransfer` needs."""

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer."""

    @property
    def n_state_bytes(self) -> int:
        """Size of the state in the buffer."""

    def shrink_buffer(self) -> None:
        """Give back what the state does not need of the range."""

    def save(self, seq_id: int, n_bytes: int | None = None, *, may_grow: bool = True) -> int:
        """Issue the copy out."""

    def prefetch(self, n_bytes: int | None = None) -> bool:
        """Issue the state's way to staging memory, or the next part of it."""

    @property
    def prefetch_left_bytes(self) -> int:
        """What of it was not issued yet."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""


class LendingTransfer(NativeTransfer, Protocol):
    """As much of it as `BounceBuffer` needs, whose buffer others read and fill."""
