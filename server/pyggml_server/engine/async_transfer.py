"""The asynchronous way out of the pool and back: issued here, landed by `landings`. Engine thread.

Never blocks but where its docstrings say so. Page-locked memory only: what a buffer turns out to be is known when it
has been allocated, and the copy of a pageable one would block the thread that issues it.
"""

from __future__ import annotations

from typing import Protocol

from pyggml_server.engine.kept_buffers import KeptBuffers
from pyggml_server.engine.transfer import TransferRefusedError
from pyggml_server.native.border import PyggmlError


class PageableBufferError(TransferRefusedError):
    """A buffer of the size that was needed is not page-locked. It was given back; nothing was copied."""


class StateSizes(Protocol):
    """A context, as far as it is asked how large a state is."""

    def state_size(self, seq_id: int) -> int:
        """Bytes that the sequence's state needs now."""


class NativeTransfer(Protocol):
    """The bindings' `Transfer`, as far as the engine uses it."""

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer."""

    @property
    def is_pinned(self) -> bool:
        """Whether there is a buffer and it is page-locked."""

    @property
    def n_state_bytes(self) -> int:
        """Size of the state in the buffer."""

    def reserve(self, n_bytes: int) -> None:
        """Make the buffer at least so large."""

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

    def cancel(self) -> None:
        """Wait, then forget the state."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""

    def close(self) -> None:
        """Wait, then free everything."""


class AsyncTransfer:
    """One slot's copies through the bindings' Transfer. A restored slot keeps its buffer for its next park.

    A buffer that is dropped is held by nobody any more, but kept: `kept` says for how long.

    frees_on_landing  of the last save; before one, what is to be expected: with staging memory (`is_staged`) a state
                      leaves its cells at once if it fits there.
    """

    def __init__(
        self, sizes: StateSizes, native: NativeTransfer, kept: KeptBuffers, *, is_staged: bool = False
    ) -> None:
        self.frees_on_landing = not is_staged
        self._is_staged = is_staged
        self._sizes = sizes
        self._native = native
        self._kept = kept
        self._is_restoring = False
        self.is_held = False
        kept.add(self)

    @property
    def buffer_bytes(self) -> int:
        return self.size_bytes if self.is_held else 0

    @property
    def size_bytes(self) -> int:
        """Of the buffer, held or kept."""
        return self._native.buffer_bytes

    @property
    def pinned_bytes(self) -> int:
        """Of the buffer, held or kept."""
        return self._native.buffer_bytes if self._native.is_pinned else 0

    @property
    def state_bytes(self) -> int:
        return self._native.n_state_bytes

    def keep_ready(self, n_bytes: int) -> None:
        """Page-lock a buffer that nobody holds yet; blocks for that. Without one a park asks again, for its need."""
        self._has_reserved(n_bytes)

    def save(self, seq_id: int) -> None:
        """Issue the copy out. Blocks to page-lock a buffer where the one it has is too small."""
        try:
            n_bytes = self._sizes.state_size(seq_id)
            self._take_buffer(n_bytes)
            self._native.save(seq_id, n_bytes)
            self.is_held = True
            self.frees_on_landing = not self._native.freed_on_issue
        except (MemoryError, PyggmlError) as error:
            raise TransferRefusedError(f"sequence {seq_id} could not be saved: {error}") from error

    def restore(self, seq_id: int) -> None:
        """Allocate cells and issue the copy in."""
        try:
            self._native.restore(seq_id)
        except PyggmlError as error:
            raise TransferRefusedError(f"sequence {seq_id} could not be restored: {error}") from error
        self._is_restoring = True

    def is_done(self) -> bool:
        is_done = self._native.done()
        if is_done:
            self._end_restore()
        return is_done

    def wait(self) -> None:
        self._native.wait()
        self._end_restore()

    def drop(self) -> None:
        """Blocks until the copy has ended. The buffer stays page-locked and counts as nobody's."""
        self._is_restoring = self.is_held = False
        self._native.cancel()

    def free(self) -> None:
        """Give the memory of a buffer that is not held back to the system; blocks for that."""
        self._native.release_buffer()

    def close(self) -> None:
        """Blocks until the copy has ended."""
        if not self._native.closed:
            self._kept.remove(self)
            self._native.close()

    def _end_restore(self) -> None:
        """The state is in the pool again: what the buffer holds of it is of no more use."""
        if self._is_restoring:
            self._is_restoring = False
            self._native.cancel()

    def _take_buffer(self, n_bytes: int) -> None:
        roomy_bytes = self._kept.make_room(self, n_bytes)
        if roomy_bytes > n_bytes and self._has_reserved(roomy_bytes):
            return
        self._native.reserve(n_bytes)
        if not self._native.is_pinned:
            self._native.release_buffer()
            raise PageableBufferError(f"a buffer of {n_bytes} bytes is not page-locked")

    def _has_reserved(self, n_bytes: int) -> bool:
        """Whether the buffer is so large and page-locked now; one that is pageable is given back."""
        try:
            self._native.reserve(n_bytes)
        except (MemoryError, PyggmlError):
            return False
        if not self._native.is_pinned:
            self._native.release_buffer()
        return self._native.is_pinned
