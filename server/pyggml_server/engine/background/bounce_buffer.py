"""Pinned memory that states pass through, on their way between the pool and pageable memory or a file.

Engine thread. A buffer for each context (the target's, the draft's) is a part of one pool, from when its job asks for
room until its turn ends. One state at a time; `Turn` waits for it. The job that has the turn may lend views of the
buffers to the helper thread, and drops them before it gives the turn back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyggml_server.engine.background.jobs import Steps
from pyggml_server.engine.transfers.native_transfer import LendingTransfer
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from pyggml_server.native.runtime import Context, PinnedPool

log = logging.getLogger(__name__)


class Growth:
    """The moment at which so much of a pool is pinned, or no more can be."""

    def __init__(self, memory: PinnedPool, n_bytes: int) -> None:
        self._memory = memory
        self._n_bytes = n_bytes
        memory.grow(n_bytes)

    def is_done(self) -> bool:
        return self._memory.pinned_bytes >= self._n_bytes or not self._memory.can_grow

    def wait(self) -> None:
        self._memory.fill(self._n_bytes)


class BounceBuffer:
    """Copies of one sequence, in every context or in the target's only.

    frees_on_issue  whether the last save had no more need of the sequence's cells once it was issued.

    `is_lasting`: its transfers exist always. If not, from when a job asks for room until its turn ends: a context that
    has any has more to do after every decode.
    """

    def __init__(
        self,
        contexts: Sequence[Context],
        new_transfer: Callable[[Context], LendingTransfer],
        memory: PinnedPool | None,
        *,
        is_lasting: bool,
    ) -> None:
        self._contexts = contexts
        self._new_transfer = new_transfer
        self._memory = memory
        self._n_first_bytes = self.pinned_bytes
        self._is_lasting = is_lasting
        self._transfers: list[LendingTransfer] = []
        self._n_used = 0  # of the transfers, from the first on: those that have a buffer
        self._is_taken = False
        self.frees_on_issue = False
        if is_lasting:
            self._open()

    @property
    def is_taken(self) -> bool:
        """Whether a job has the turn."""
        return self._is_taken

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory."""
        return 0 if self._memory is None else self._memory.pinned_bytes

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Takes the turn, which no job may have now. At its end blocks until the copy has ended."""
        assert not self._is_taken, "the buffer is another's"
        self._is_taken = True
        try:
            yield
        finally:
            try:
                self._release()
            finally:
                self._is_taken = False

    def sizes_bytes(self, seq_id: int, *, is_target_only: bool = False) -> list[int]:
        """What the sequence's states need. Walks the cells."""
        contexts = self._contexts[:1] if is_target_only else self._contexts
        return [context.state_size(seq_id) for context in contexts]

    def room_for(self, sizes_bytes: Sequence[int]) -> Steps[bool]:
        """Steps of the job that has the turn: buffers for states of these sizes, in the order of the contexts.

        False where the memory cannot hold them. What is missing is pinned by `grow`, between two decodes.
        """
        if self._memory is None or not self.holds(sizes_bytes):
            return False
        try:
            self._open()
        except (MemoryError, PyggmlError) as error:
            log.warning("a prompt cannot be copied asynchronously: %s", error)
            return False
        for transfer, n_bytes in zip(self._transfers, sizes_bytes, strict=False):
            yield Growth(self._memory, self._memory.end_for(n_bytes))
            part = self._memory.take(n_bytes)
            if part is None:
                return False
            try:
                transfer.use(part)
            except BaseException:
                part.give_back()
                raise
            self._n_used += 1
        return True

    def holds(self, sizes_bytes: Sequence[int]) -> bool:
        """Whether states of these sizes fit, once everything is pinned."""
        return self._memory is not None and sum(sizes_bytes) <= self._memory.limit_bytes

    def grow(self) -> None:
        """Between two decodes: pin a piece, if any is wanted. Blocks for it."""
        if self._memory is not None:
            self._memory.advance()

    def rest(self) -> None:
        """Nobody runs: unlock what came later than at load, if nobody has the turn. Blocks if there is any."""
        if self._memory is not None and not self._is_taken and self._memory.pinned_bytes > self._n_first_bytes:
            self._memory.trim(self._n_first_bytes)

    def save(self, seq_id: int, sizes_bytes: Sequence[int]) -> None:
        """Issue the copies out of the pool, of the sizes for which there is room. Raises TransferRefusedError; nothing
        is in flight then."""
        self.frees_on_issue = True
        try:
            for transfer, n_bytes in zip(self._used(), sizes_bytes, strict=True):
                transfer.save(seq_id, n_bytes)
                self.frees_on_issue = self.frees_on_issue and transfer.freed_on_issue
        except (MemoryError, PyggmlError) as error:
            self.wait()
            raise TransferRefusedError(f"sequence {seq_id} could not be saved: {error}") from error

    def restore(self, seq_id: int) -> None:
        """Allocate cells and issue the copies in. Raises TransferRefusedError; the sequence is empty then."""
        try:
            for transfer in self._used():
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
        """Views of what was saved, once that has completed."""
        return [transfer.state for transfer in self._used()]

    def blanks(self, sizes_bytes: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        """Writable views, for states that shall be restored, of the sizes for which there is room."""
        return [transfer.blank(n) for transfer, n in zip(self._used(), sizes_bytes, strict=True)]

    def close(self) -> None:
        """Wait, then give everything up; before the context is freed. Idempotent."""
        self._shut()
        if self._memory is not None:
            self._memory.close()

    def _used(self) -> list[LendingTransfer]:
        return self._transfers[: self._n_used]

    def _open(self) -> None:
        while len(self._transfers) < len(self._contexts):
            self._transfers.append(self._new_transfer(self._contexts[len(self._transfers)]))

    def _release(self) -> None:
        used, self._n_used = self._used(), 0
        for transfer in used:
            transfer.release_buffer()
        if not self._is_lasting:
            self._shut()

    def _shut(self) -> None:
        while self._transfers:
            self._transfers.pop().close()
