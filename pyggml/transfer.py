"""One sequence's state on its way out of a context's memory, or back, while the context keeps decoding.

On the context's thread: on another one everything that calls, changes or asks for the copy raises WrongThreadError, in
flight or not, until the context is closed. Sizes and flags that are kept here can be read on any. `save` and `restore`
issue the copy and return; only `wait`, `cancel`, `close` and the end of the context block for it.
"""

from __future__ import annotations

from collections.abc import Generator
from operator import index
from typing import Any, Self

from pyggml.closing import Closing
from pyggml.context import Context
from pyggml.errors import BufferTooSmallError, InvalidArgumentError, NoRoomError, StateError
from pyggml.ffi import call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.transfer_buffer import SIZE_MAX, TransferBuffer

# How often an `await` asks whether the copy has ended.
_POLL_S = 0.0005


class Transfer(TransferBuffer, Closing):
    """Copies states of `context` asynchronously, one at a time; make one for each that shall overlap.

        transfer = Transfer(context)
        transfer.save(0)                    # issued
        while not transfer.done():
            ...                             # other sequences decode
        context.seq_remove(0)               # the cells are free for others only now
        transfer.restore(1)                 # issued; sequence 1 may decode once it is done
        await transfer                      # or, under asyncio, wait like this

    The saved state stays in the buffer and can be restored again, until the next `save`, `load` or `cancel`. It also
    outlives the context. Raises UnsupportedError, with llama.cpp's reason, where the context's devices cannot copy
    asynchronously: use `Context.save_state` there.

    `is_staged`: the context was made with staging memory, so that a save may need the cells no more once it is issued.
    """

    def __init__(self, context: Context, *, is_staged: bool = False):
        super().__init__(context)
        self._is_issued = False
        self._is_staged = is_staged
        self._freed_on_issue = False
        self._prefetch_left_bytes = 0

    def save(self, seq_id: int, n_bytes: int | None = None, *, may_grow: bool = True) -> int:
        """Issues the copy of the sequence's state into the buffer; returns the size of the state.

        A buffer that is too small is made larger, which may block to pin it. Not so with `may_grow=False`, which
        raises BufferTooSmallError, and with `n_bytes`, which is reserved before and not exceeded. To ask for
        `Context.state_size` before costs as much as the save.

        The cells must stay the sequence's until the copy has ended, and until then the context refuses to remove them,
        unless `freed_on_issue` says that they are free at once. Raises TransferInFlightError, BufferError (a view of
        the last state is alive), UnappliedUpdateError, OutOfMemoryError, StateError; nothing is copied then, and the
        state that the buffer held is lost. Raises InvalidArgumentError for `n_bytes` below 0, and nothing has changed.
        """
        context = self._idle_context()
        n_bytes = None if n_bytes is None else index(n_bytes)
        if n_bytes is not None and n_bytes < 0:
            raise InvalidArgumentError(f"n_bytes is {n_bytes}: 0 or more is needed")
        context.check_transferable(seq_id)
        self._check_no_views("saved over")
        may_grow = may_grow and n_bytes is None
        if n_bytes is not None:
            self.reserve(n_bytes)
        elif may_grow and self.buffer_bytes == 0:
            self.reserve(context.state_size(seq_id))
        try:
            self._issue_save(seq_id, self.buffer_bytes if n_bytes is None else n_bytes)
        except BufferTooSmallError as error:
            if not may_grow:
                raise
            self.reserve(error.n_bytes)
            self._issue_save(seq_id, error.n_bytes)
        self._is_issued, self._is_own_state = True, True
        if self._freed_on_issue:
            context.transfers.remove(self)
        else:
            context.transfers.add(seq_id, self)
        return self._n_state_bytes

    def _issue_save(self, seq_id: int, room_bytes: int) -> None:
        if room_bytes == 0:
            needed_bytes = self._context.state_size(seq_id)
            raise BufferTooSmallError(f"the state has {needed_bytes} bytes, and there is no buffer", needed_bytes)
        self._n_state_bytes, self._is_prefetched = 0, False
        n_bytes, frees = ffi.new("size_t *"), ffi.new("bool *")
        arguments = (self._handle.pointer(), seq_id, room_bytes, 0, n_bytes, frees)
        try:
            call(lib.pyggml_transfer_save, *arguments, error=StateError)
        except StateError as error:
            if n_bytes[0] > 0:
                raise BufferTooSmallError(str(error), int(n_bytes[0])) from None
            raise
        self._n_state_bytes = int(n_bytes[0])
        self._freed_on_issue = self._is_staged and bool(frees[0])

    @property
    def freed_on_issue(self) -> bool:
        """Whether the last save had no more need of the sequence's cells once it was issued. False before one."""
        return self._freed_on_issue

    def frees_on_issue(self, seq_id: int) -> bool:
        """Whether a save of the sequence has read its cells before the next decode can change them.

        It has where all of the state fits into the staging memory that is free (`ContextParams.n_bytes_staging`). Walks
        the sequence's cells, unless its save is in flight; `freed_on_issue` tells of the last save at no cost.
        """
        self._check_thread()
        frees = ffi.new("bool *")
        call(lib.pyggml_transfer_frees_on_issue, self._handle.pointer(), seq_id, frees)
        return bool(frees[0])

    def prefetch(self, n_bytes: int | None = None) -> bool:
        """Issues the state's way to staging memory, for which no sequence needs cells, and returns.

        With `n_bytes` only about so many at most, for each device; every further call issues as many more, as long as
        there are `prefetch_left_bytes`. What a decode needs from the host queues behind all that was issued before, so
        a part behind each decode delays none of them.

        `done` tells when what was issued is there. The `restore` that follows, before or after that, issues what is
        left and then only has to put the state into cells. False, with nothing issued, where it cannot go there:
        without staging memory, and where the state does not fit into the part of it that is free for restores. A state
        that came by `load` or `blank` is looked through, and must not change after that; False also where its bytes are
        not for this context, as the log and `restore` say, or its memory is neither a plain nor a window cache. Its
        place is given back by the restore, the next `save` or `load`, and `release_buffer`. On the context's thread;
        does not block. Raises TransferInFlightError, StateError (there is no state), InvalidArgumentError (`n_bytes`
        below 1).
        """
        self._check_thread()
        self._check_state()
        limit_bytes = SIZE_MAX if n_bytes is None else min(index(n_bytes), SIZE_MAX)
        if limit_bytes < 1:
            raise InvalidArgumentError(f"n_bytes is {n_bytes}: pass at least 1, or None for all of it")
        if self._is_prefetched and self._prefetch_left_bytes == 0:
            return True
        if not self._is_prefetched:
            self._idle_context().transfers.remove(self)
        if self._is_staged:
            issued, n_left = ffi.new("bool *"), ffi.new("size_t *")
            is_known = self._is_own_state or self._is_prefetched
            n_loaded_bytes = 0 if is_known else self._n_state_bytes
            arguments = (self._handle.pointer(), n_loaded_bytes, limit_bytes, issued, n_left)
            call(lib.pyggml_transfer_prefetch, *arguments)
            self._is_prefetched = self._is_issued = bool(issued[0])
            self._prefetch_left_bytes = int(n_left[0])
        return self._is_prefetched

    @property
    def prefetch_left_bytes(self) -> int:
        """What of a prefetch in parts has still to be issued, of all devices together. 0 without a prefetch."""
        return self._prefetch_left_bytes if self._is_prefetched else 0

    def drop_prefetch(self) -> None:
        """Gives up the place of a prefetched state in staging memory; blocks until it is there. The state is kept."""
        self._check_thread()
        if self._is_prefetched:
            call(lib.pyggml_transfer_prefetch_drop, self._handle.pointer())
            self._is_prefetched = self._is_issued = False

    def restore(self, seq_id: int) -> int:
        """Gives the sequence cells and issues the copy of the state into them; returns the size of the state.

        What the sequence held before is removed. Goes through staging memory where the state fits there, or is there
        already (`prefetch`). The sequence may be decoded at once, which waits for the copy on the device, and saved or
        removed once the copy has ended. Raises NoRoomError for too few free cells, TransferInFlightError, StateError;
        the sequence is empty then, and the state is kept.
        """
        context = self._live_context() if self._is_prefetched else self._idle_context()
        self._check_state()
        if self._is_own_state:
            context.check_receiving(seq_id)
        else:
            context.check_restorable(self._writable_state(), seq_id)
        if not context.seq_is_empty(seq_id):  # to remove nothing walks the whole pool
            context.seq_remove(seq_id)
        n_read, no_room = ffi.new("size_t *"), ffi.new("bool *")
        arguments = (self._handle.pointer(), seq_id, self._n_state_bytes, 0, n_read, no_room)
        try:
            call(lib.pyggml_transfer_restore, *arguments, error=StateError)
        except StateError as error:
            if no_room[0] or context.needs_more_cells(self._writable_state()):
                raise NoRoomError(f"{error}: remove a sequence first") from None
            raise
        self._is_issued, self._is_prefetched = True, False
        context.transfers.add(seq_id, self)
        return int(n_read[0])

    def done(self) -> bool:
        """Whether the last issued copy has ended, or none was issued. Never blocks."""
        self._check_thread()
        if self._is_issued:
            done = ffi.new("bool *")
            call(lib.pyggml_transfer_done, self._handle.pointer(), done)
            self._is_issued = not done[0]
        return not self._is_issued

    def wait(self) -> None:
        """Blocks until the last issued copy has ended."""
        self._check_thread()
        if self._is_issued:
            call(lib.pyggml_transfer_wait, self._handle.pointer())
            self._is_issued = False

    def cancel(self) -> None:
        """Blocks until the copy has ended, and forgets the state. A sequence that was being restored has it whole.

        A state that was prefetched keeps its place in staging memory: `release_buffer` gives that back too.
        """
        self.wait()
        self._n_state_bytes = 0

    def __await__(self) -> Generator[Any, None, Self]:
        """Lets other coroutines of this thread run until the copy has ended; gives the transfer itself."""
        return self._ended().__await__()

    async def _ended(self) -> Self:
        import asyncio  # a sixth of the package's import time, and code that awaits has it already

        while not self.done():
            await asyncio.sleep(_POLL_S)
        return self

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def close(self) -> None:
        """Blocks until the copy has ended, then frees everything; the buffer when its last view is gone. Idempotent.

        On the context's thread; on any once the context is closed.
        """
        if not self._handle.closed:
            self.wait()
            self._handle.close()

    def __del__(self) -> None:
        handle: NativeHandle | None = getattr(self, "_handle", None)
        if handle is not None:
            handle.close()  # which waits for a copy in flight, on the context's thread
