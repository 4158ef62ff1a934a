"""The asynchronous way out of the pool and back: issued here, completed by `preemption/copies.py`. Engine thread.

Never blocks but where its docstrings say so. Pinned memory only, from the pool of the model load: the copy of a
pageable buffer would block the thread that issues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pyggml_server.engine.transfers.native_transfer import ParkingTransfer
from pyggml_server.engine.transfers.park_memory import ParkMemory
from pyggml_server.engine.transfers.size_estimate import SizeEstimate
from pyggml_server.engine.transfers.transfer import Bytes, TransferRefusedError
from pyggml_server.native.border import BufferTooSmallError, PyggmlError

if TYPE_CHECKING:
    pass


class StateSizes(Protocol):
    """A context, as far as it is asked how large a state is."""

    def state_size(self, seq_id: int) -> int:
        """Bytes that the sequence's state needs now. Walks its cells, as a save does."""

    def seq_pos_max(self, seq_id: int) -> int | None:
        """Its last position; None without any."""


class AsyncTransfer:
    """One slot's copies through the bindings' Transfer. Its buffer is a range of the pool, from a park until its
    restore has completed.

    is_staged            there is staging memory.
    frees_on_completion  of the last save; before one, what is to be expected: with staging memory a state leaves its
                         cells at once if it fits there.
    """

    def __init__(
        self,
        sizes: StateSizes,
        native: ParkingTransfer,
        memory: ParkMemory,
        estimate: SizeEstimate,
        *,
        is_staged: bool = False,
    ) -> None:
        self.frees_on_completion = not is_staged
        self.is_staged = is_staged
        self._sizes = sizes
        self._native = native
        self._memory = memory
        self._estimate = estimate
        self._is_restoring = False

    @property
    def buffer_bytes(self) -> int:
        return self._native.buffer_bytes

    @property
    def pinned_bytes(self) -> int:
        return self._native.buffer_bytes

    @property
    def state_bytes(self) -> int:
        return self._native.n_state_bytes

    def save(self, seq_id: int, *, may_block: bool = False) -> None:
        """Issue the copy out. Blocks for pinned memory only with `may_block`."""
        try:
            if not self._save_by_estimate(seq_id):
                n_bytes = self._sizes.state_size(seq_id)
                self._native.use(self._memory.take(n_bytes, may_block=may_block))
                self._native.save(seq_id, n_bytes)
            self.frees_on_completion = not self._native.freed_on_issue
        except (MemoryError, PyggmlError) as error:
            self._native.release_buffer()
            raise TransferRefusedError(f"sequence {seq_id} could not be saved: {error}") from error

    @property
    def prefetch_left_bytes(self) -> int:
        return self._native.prefetch_left_bytes

    def prefetch(self, n_bytes: int | None = None) -> bool:
        try:
            return self._native.prefetch(n_bytes)
        except (MemoryError, PyggmlError) as error:
            raise TransferRefusedError(f"a state could not be copied to staging memory: {error}") from error

    def restore(self, seq_id: int) -> None:
        """Allocate cells and issue the copy in."""
        try:
            self._native.restore(seq_id)
        except PyggmlError as error:
            raise TransferRefusedError(f"sequence {seq_id} could not be restored: {error}") from error
        self._is_restoring = True

    def parts(self) -> list[Bytes]:
        return [self._native.state]

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        (n_bytes,) = sizes_bytes
        try:
            self._native.use(self._memory.take(n_bytes))
            return [self._native.blank(n_bytes)]
        except (MemoryError, PyggmlError) as error:
            self._native.release_buffer()
            raise TransferRefusedError(f"there is no host memory for {n_bytes} bytes: {error}") from error

    def is_done(self) -> bool:
        is_done = self._native.done()
        if is_done:
            self._end_restore()
        return is_done

    def wait(self) -> None:
        self._native.wait()
        self._end_restore()

    def drop(self) -> None:
        """Blocks until the copy has ended."""
        self._is_restoring = False
        self._native.release_buffer()

    def leave(self) -> None:
        """Blocks until the copy has ended."""
        self._is_restoring = False
        self._native.leave_buffer()

    def close(self) -> None:
        """Blocks until the copy has ended."""
        if not self._native.closed:
            self._native.close()

    def _save_by_estimate(self, seq_id: int) -> bool:
        """Issue it into a range that should be large enough, and give back what is left of that. False where there is
        none, or where it is too small. To ask for the size would walk the cells once more."""
        pos_max = self._sizes.seq_pos_max(seq_id)
        part = None if pos_max is None else self._memory.offer(self._estimate.of(pos_max + 1))
        if part is None:
            return False
        self._native.use(part)
        try:
            self._native.save(seq_id, may_grow=False)
        except BufferTooSmallError:
            self._native.release_buffer()
            return False
        self._native.shrink_buffer()
        return True

    def _end_restore(self) -> None:
        """The state is in the pool again: its range is free for others."""
        if self._is_restoring:
            self._is_restoring = False
            self._native.release_buffer()
