"""The host buffer of a transfer and the state in it: its size, a view of it, bytes from elsewhere. Context's thread.

The buffer is not touched, moved or freed while a copy uses it or a view of it is alive.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from functools import partial
from operator import index

import numpy as np
import numpy.typing as npt

from pyggml.context import Context
from pyggml.errors import InvalidArgumentError, OutOfMemoryError, StateError, TransferInFlightError, UnsupportedError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.pinned_range import LentRange, PinnedRange
from pyggml.state_format import Buffer, byte_view

SIZE_MAX = 2**64 - 1
"""What a size_t can say: no memory is larger."""


class TransferBuffer(ABC):
    """Base of Transfer: everything but the copies."""

    def __init__(self, context: Context):
        out = ffi.new("struct llama_state_seq_copy **")
        call(lib.pyggml_transfer_init, context.native_pointer(), out, error=UnsupportedError)
        self._context = context
        self._lent: list[LentRange] = []  # the range of a pool that is the buffer, if one is
        self._handle = NativeHandle(out[0], context.on_its_thread(partial(_free, self._lent)), "transfer")
        self._views: weakref.WeakSet[_StateView] = weakref.WeakSet()
        self._n_state_bytes = 0
        self._is_own_state = False  # saved by this transfer: nothing else wrote its bytes
        self._is_prefetched = False  # the state is in staging memory too, or on its way there
        # kept here, because each native call releases the GIL and may have to wait for it
        self._buffer_bytes = 0
        self._is_pinned = False

    @abstractmethod
    def done(self) -> bool:
        """Whether no copy is in flight. Never blocks."""

    @abstractmethod
    def cancel(self) -> None:
        """Blocks until no copy is in flight, and forgets the state."""

    @property
    def n_state_bytes(self) -> int:
        """Size of the state in the buffer, also while it is on its way there; 0 if there is none."""
        return self._n_state_bytes

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """The saved state as a read-only uint8[n_state_bytes] view of the buffer, in `Context.save_state`'s format.

        The view keeps the buffer. Raises TransferInFlightError while a copy is in flight, StateError without a state.
        """
        self._check_ended("read")
        self._check_state()
        view = self._new_view()
        view.flags.writeable = False
        return view

    def load(self, data: Buffer) -> None:
        """Copies a state, however it was saved, into the buffer, to be restored from there. Blocks for the copy."""
        self._check_thread()
        source = np.frombuffer(byte_view(data), np.uint8)
        if len(source) == 0:
            raise InvalidArgumentError("there are no bytes to load: pass what save_state gave")
        if self._is_prefetched:
            self.release_buffer()  # else the state in staging memory would be restored instead
        self._idle_context()
        self._check_no_views("loaded over")
        self.reserve(len(source))
        self._n_state_bytes, self._is_own_state = len(source), False
        self._writable_state()[:] = source

    def blank(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """The buffer as a writable uint8[n_bytes] view, for a state that comes from elsewhere and shall be restored.

        Any thread may fill it, before the `restore`; then drop it: `save`, `load` and `blank` refuse while it is alive,
        as they do for a view of a saved state. Raises as `load` does.
        """
        self._check_thread()
        n_bytes = index(n_bytes)
        if n_bytes < 1:
            raise InvalidArgumentError(f"there is no state of {n_bytes} bytes")
        if self._is_prefetched:
            self.release_buffer()
        self._idle_context()
        self._check_no_views("filled")
        self.reserve(n_bytes)
        self._n_state_bytes, self._is_own_state = n_bytes, False
        return self._new_view()

    def reserve(self, n_bytes: int) -> None:
        """Makes the buffer at least so large; what it held is lost if it grows. May block to pin it.

        A range that it used is given back then, even if there is no memory to grow into. Raises OutOfMemoryError,
        BufferError (a view of its state is alive), TransferInFlightError.
        """
        self._idle_context()
        n_bytes = index(n_bytes)
        if n_bytes > self.buffer_bytes:
            self._check_no_views("grown")
            if n_bytes > SIZE_MAX:
                raise OutOfMemoryError(f"{n_bytes} bytes cannot be allocated")
            if self._lent:  # of which a part may be another's by now
                self._release()
            call(lib.pyggml_transfer_reserve, self._handle.pointer(), n_bytes, error=OutOfMemoryError)
            self._note_buffer()

    def use(self, part: PinnedRange) -> None:
        """Takes a range of a PinnedPool as its buffer, in place of what it had, and with it the duty to give it back.

        It does so in `release_buffer`, in `close`, and when the buffer grows or another range is used. Until then the
        range cannot be used again, nor shrunk or given back by others. Costs nothing. Raises BufferError (a view of its
        state is alive, or the range is in use), TransferInFlightError, ClosedError (it was given back); nothing has
        changed then.
        """
        self._idle_context()
        self._check_no_views("replaced")
        lent = part.lend()
        memory = ffi.cast("void *", lent.address)
        if not lib.llama_state_seq_copy_buf_use(self._handle.pointer(), memory, lent.n_bytes, lent.piece_bytes, True):
            lent.end()
            raise InvalidArgumentError(f"the range of {lent.n_bytes} bytes cannot be the transfer's buffer")
        self._note_buffer()
        _give_back(self._lent)
        self._lent.append(lent)

    def shrink_buffer(self) -> None:
        """Gives back what the state does not need of a range that it uses; also while the copy is in flight.

        Costs nothing. Without such a range nothing changes. Raises StateError (there is no state).
        """
        self._check_thread()
        self._check_state()
        for part in self._lent:
            part.shrink(self._n_state_bytes)
            self._buffer_bytes = self._n_state_bytes

    def release_buffer(self) -> None:
        """Gives the buffer back, and the state in it. Blocks until no copy is in flight. Raises BufferError."""
        self.cancel()
        self._check_no_views("released")
        self._release()

    def leave_buffer(self) -> None:
        """Gives the buffer up, and the state in it, to the views that are alive. Blocks until no copy is in flight.

        A range of a pool is given back, on whatever thread, when the last of them is gone; at once without any. Raises
        BufferError for views of a buffer that is no such range.
        """
        self.cancel()
        if not self._lent:
            self._check_no_views("left")
        left = _LeftRanges(self._lent)
        for view in self._views:
            view.left = left
        self._views.clear()
        self._release()

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer, whether it holds a state or not."""
        self._handle.pointer()
        return self._buffer_bytes

    @property
    def can_pin(self) -> bool:
        """Whether the device offers pinned memory. What an allocation got is `is_pinned`."""
        self._check_thread()
        return bool(lib.llama_state_seq_copy_buf_can_pin(self._handle.pointer()))

    @property
    def is_pinned(self) -> bool:
        """Whether there is a buffer and it is pinned: copies from and to any other memory may block."""
        self._handle.pointer()
        return self._is_pinned

    def _release(self) -> None:
        call(lib.pyggml_transfer_release, self._handle.pointer())
        self._note_buffer()
        _give_back(self._lent)

    def _note_buffer(self) -> None:
        """The buffer is another one now, or none: it holds no state."""
        pointer = self._handle.pointer()
        self._buffer_bytes = int(lib.llama_state_seq_copy_buf_size(pointer))
        self._is_pinned = bool(lib.llama_state_seq_copy_buf_is_pinned(pointer))
        self._n_state_bytes, self._is_prefetched = 0, False

    def _new_view(self) -> npt.NDArray[np.uint8]:
        base = _StateView(self._handle, self._n_state_bytes)
        self._views.add(base)
        return np.asarray(base)

    def _idle_context(self) -> Context:
        """The context, for a call that needs it and no copy in flight. Raises ClosedError, TransferInFlightError."""
        context = self._live_context()
        self._check_ended("used")
        return context

    def _live_context(self) -> Context:
        """The context, for a call that may come while a copy is in flight. Raises ClosedError."""
        self._handle.pointer()
        self._context.native_pointer()
        return self._context

    def _check_thread(self) -> None:
        """Raises WrongThreadError on any thread but the context's, in flight or not. Any may call once it is closed."""
        self._context.check_thread()

    def _check_ended(self, what: str) -> None:
        if not self.done():
            raise TransferInFlightError(f"the transfer's copy is in flight, so it cannot be {what} now: wait for it")

    def _check_state(self) -> None:
        if self._n_state_bytes == 0:
            raise StateError("this transfer holds no state: save a sequence or load a state first")

    def _check_no_views(self, what: str) -> None:
        if self._views:
            raise BufferError(f"a view of the transfer's state is alive, so it cannot be {what}: drop the view")

    def _writable_state(self) -> npt.NDArray[np.uint8]:
        buffer = lib.llama_state_seq_copy_buf(self._handle.pointer())
        return np.frombuffer(ffi.buffer(buffer, self._n_state_bytes), np.uint8)


def _free(lent: list[LentRange], pointer: CData) -> None:
    lib.pyggml_transfer_free(pointer)
    _give_back(lent)


def _give_back(lent: list[LentRange]) -> None:
    """Only once no copy uses the range any more."""
    while lent:
        lent.pop().give_back()


class _LeftRanges:
    """What a transfer has left to views of it: given back together with the last of these."""

    def __init__(self, lent: list[LentRange]):
        self._lent, lent[:] = lent[:], []

    def __del__(self) -> None:
        _give_back(self._lent)


class _StateView:
    """A transfer's state as numpy sees it; the array's base. Keeps the buffer from being freed."""

    left: _LeftRanges | None = None

    def __init__(self, handle: NativeHandle, n_bytes: int):
        pointer: CData = handle.acquire()
        self._handle = handle
        self.__array_interface__ = {
            "shape": (n_bytes,),
            "typestr": "|u1",
            "data": (int(ffi.cast("uintptr_t", lib.llama_state_seq_copy_buf(pointer))), False),
            "version": 3,
        }

    def __del__(self) -> None:
        self._handle.release()
