"""How a sequence's state leaves the pool and comes back: one protocol, and the synchronous way of it. Engine thread.

A transfer owns the host buffer of its slot until the copy that uses it has ended. Nothing touches the cells of a copy
in flight: `preemption/copies.py` asks `is_done`, and only then gives cells back or lets the slot run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Context


Bytes = npt.NDArray[np.uint8]


class TransferRefusedError(RuntimeError):
    """The copy could not be made and nothing has changed; the message says why."""


class Transfer(Protocol):
    """Copies one sequence's state out of the pool and back. Never touches the cells' ownership itself."""

    @property
    def frees_on_completion(self) -> bool:
        """Whether a park's cells may be released only once it is done. Ask after `save`: it may have fallen back."""

    @property
    def buffer_bytes(self) -> int:
        """Host memory held now, whether it holds a state or is kept for the next one."""

    @property
    def pinned_bytes(self) -> int:
        """The pinned part of `buffer_bytes`."""

    @property
    def state_bytes(self) -> int:
        """Size of the state that the buffer holds; 0 if none."""

    @property
    def is_staged(self) -> bool:
        """Whether the state that it holds may come back by way of staging memory: `prefetch` may say True."""

    def save(self, seq_id: int, *, may_block: bool = False) -> None:
        """Issue the copy out; with `may_block` wait for the memory that it needs. Raises TransferRefusedError."""

    def prefetch(self, n_bytes: int | None = None, /) -> bool:
        """Issue the state's way to staging memory, for which the sequence needs no cells; `restore` puts it into cells
        from there, whether it is there yet or not. With `n_bytes` a part of that size, or the next part. False where it
        cannot go there. Raises TransferRefusedError."""

    @property
    def prefetch_left_bytes(self) -> int:
        """What of a prefetch in parts was not issued yet."""

    def restore(self, seq_id: int) -> None:
        """Allocate cells and issue the copy in. Raises TransferRefusedError; the state is kept."""

    def parts(self) -> list[Bytes]:
        """The state that it holds, to be read on any thread. Let go of them before anything else is done with it."""

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        """Host memory for a state that was in such parts, to be filled on any thread and let go of; then it is held as
        if it had been saved. Raises TransferRefusedError, and holds nothing then."""

    def is_done(self) -> bool:
        """Whether the last issued copy has ended. Never blocks."""

    def wait(self) -> None:
        """Block until the last issued copy has ended."""

    def drop(self) -> None:
        """Wait, then give up the state and the buffer."""

    def leave(self) -> None:
        """As `drop`, while somebody still has the parts: their memory is given back once they are let go of."""

    def close(self) -> None:
        """Wait, then give up everything; before the context is freed. Idempotent."""


class SyncTransfer:
    """Copies inside the call; afterwards the cells are free to go at once. Pageable memory, freed after a restore."""

    frees_on_completion = False
    is_staged = False
    pinned_bytes = 0
    prefetch_left_bytes = 0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state: npt.NDArray[np.uint8] | None = None

    @property
    def buffer_bytes(self) -> int:
        return 0 if self._state is None else self._state.nbytes

    @property
    def state_bytes(self) -> int:
        return self.buffer_bytes

    def save(self, seq_id: int, *, may_block: bool = False) -> None:  # noqa: ARG002 - it always blocks
        """Copy the sequence's state to the host. Blocks for the copy."""
        if self._state is not None:
            raise TransferRefusedError(f"sequence {seq_id} is already parked")
        try:
            n_bytes = self._context.state_size(seq_id)
            state = np.empty(n_bytes, dtype=np.uint8)
            self._context.save_state(seq_id, out=state)
        except (MemoryError, PyggmlError) as error:
            raise TransferRefusedError(f"sequence {seq_id} could not be saved: {error}") from error
        self._state = state

    def prefetch(self, _n_bytes: int | None = None, /) -> bool:
        return False

    def restore(self, seq_id: int) -> None:
        """Copy the state back into newly allocated cells. Blocks for the copy."""
        if self._state is None:
            raise TransferRefusedError(f"there is no parked state to restore into sequence {seq_id}")
        try:
            self._context.restore_state(self._state, seq_id)
        except PyggmlError as error:
            raise TransferRefusedError(f"sequence {seq_id} could not be restored: {error}") from error
        self._state = None

    def parts(self) -> list[Bytes]:
        assert self._state is not None
        return [self._state]

    def blank(self, sizes_bytes: Sequence[int]) -> list[Bytes]:
        (n_bytes,) = sizes_bytes
        try:
            self._state = np.empty(n_bytes, dtype=np.uint8)
        except MemoryError as error:
            raise TransferRefusedError(f"there is no host memory for {n_bytes} bytes: {error}") from error
        return [self._state]

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        return None

    def drop(self) -> None:
        self._state = None

    def leave(self) -> None:
        self._state = None

    def close(self) -> None:
        self._state = None
