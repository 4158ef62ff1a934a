"""The bindings' `Transfer`, as one whose buffer others read and fill. Engine thread, but for what the views are of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pyggml_server.native.runtime import PinnedRange


class LendingTransfer(Protocol):
    """As much of it as `BounceBuffer` needs."""

    def use(self, part: PinnedRange) -> None:
        """Take a range as the buffer, to be given back when it is released."""

    def release_buffer(self) -> None:
        """Wait, then give back buffer and state."""

    def save(self, seq_id: int, n_bytes: int | None = None) -> int:
        """Issue the copy out."""

    @property
    def freed_on_issue(self) -> bool:
        """Whether the last save had no more need of the sequence's cells once it was issued."""

    def restore(self, seq_id: int) -> int:
        """Issue the copy in."""

    def done(self) -> bool:
        """Whether the last issued copy has ended."""

    def wait(self) -> None:
        """Block until it has."""

    def close(self) -> None:
        """Wait, then free everything, but for views that are alive."""

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """A view of what was saved."""

    def blank(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """A writable view, for what shall be restored."""
