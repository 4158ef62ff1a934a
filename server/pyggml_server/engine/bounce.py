"""Page-locked memory that states pass through, on their way between the pool and pageable memory or a file.

Engine thread. A buffer for each context (the target's, the draft's), of a size that is fixed at load: nothing is
page-locked later. One state at a time; `Turn` waits for it. Who has the turn may lend views of the buffers to the
helper thread, and drops them before it gives the turn back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from pyggml_server.engine.transfer import TransferRefusedError
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pyggml_server.native.runtime import Context


class LendingTransfer(Protocol):
    """The bindings' `Transfer`, as one whose buffer others read and fill."""

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer."""

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

    def cancel(self) -> None:
        """Wait, then forget the state."""

    def close(self) -> None:
        """Wait, then free everything, but for views that are alive."""

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """A view of what was saved."""

    def blank(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """A writable view, for what shall be restored."""


class Bounce:
    """Copies of one sequence, in every context, through memory that is there already.

    frees_on_issue  whether the last save had no more need of the sequence's cells once it was issued.
    """

    def __init__(self, contexts: Sequence[Context], transfers: Sequence[LendingTransfer]) -> None:
        self._contexts = contexts
        self._transfers = transfers
        self._is_taken = False
        self.frees_on_issue = False

    @property
    def is_taken(self) -> bool:
        """Whether somebody has the turn."""
        return self._is_taken

    @contextmanager
    def turn(self) -> Iterator[None]:
        """From a moment at which nobody has it until the copy has ended, for which the end blocks."""
        assert not self._is_taken, "the buffer is another's"
        self._is_taken = True
        try:
            yield
        finally:
            for transfer in self._transfers:
                transfer.cancel()
            self._is_taken = False

    def sizes_bytes(self, seq_id: int) -> list[int]:
        """What the sequence's states need. Walks the cells."""
        return [context.state_size(seq_id) for context in self._contexts]

    def holds(self, sizes_bytes: Sequence[int]) -> bool:
        """Whether states of these sizes fit."""
        pairs = zip(self._transfers, sizes_bytes, strict=True)
        return all(transfer.buffer_bytes >= n_bytes for transfer, n_bytes in pairs)

    def save(self, seq_id: int, sizes_bytes: Sequence[int]) -> None:
        """Issue the copies out of the pool. Raises TransferRefusedError; nothing is in flight then."""
        self.frees_on_issue = True
        try:
            for transfer, n_bytes in zip(self._transfers, sizes_bytes, strict=True):
                transfer.save(seq_id, n_bytes)
                self.frees_on_issue = self.frees_on_issue and transfer.freed_on_issue
        except (MemoryError, PyggmlError) as error:
            self.wait()
            raise TransferRefusedError(f"sequence {seq_id} could not be saved: {error}") from error

    def restore(self, seq_id: int) -> None:
        """Allocate cells and issue the copies in. Raises TransferRefusedError; the sequence is empty then."""
        try:
            for transfer in self._transfers:
                transfer.restore(seq_id)
        except PyggmlError as error:
            self.wait()
            for context in self._contexts:
                context.seq_remove(seq_id)
            raise TransferRefusedError(f"sequence {seq_id} could not be restored: {error}") from error

    def is_done(self) -> bool:
        """Whether the last issued copies have ended. Never blocks."""
        return all(transfer.done() for transfer in self._transfers)

    def wait(self) -> None:
        """Block until they have."""
        for transfer in self._transfers:
            transfer.wait()

    def states(self) -> list[npt.NDArray[np.uint8]]:
        """Views of what was saved, once that has landed."""
        return [transfer.state for transfer in self._transfers]

    def blanks(self, sizes_bytes: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """Writable views, for states of these sizes that shall be restored."""
        return [transfer.blank(n) for transfer, n in zip(self._transfers, sizes_bytes, strict=True)]

    def close(self) -> None:
        """Wait, then give everything up; before the context is freed. Idempotent."""
        for transfer in self._transfers:
            transfer.close()
