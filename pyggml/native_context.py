"""The native side of a context: its pointer, the thread that it is bound to, and its life.

Only that thread may call it; `request_abort` and reading plain attributes are the exceptions. A context keeps its model
from being freed.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from operator import index

from pyggml.closing import Closing
from pyggml.errors import InvalidArgumentError, OutOfMemoryError, UnsupportedError, WrongThreadError
from pyggml.ffi import CData, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.model import Model


class NativeContext(Closing):
    """Base of Context: what does not depend on what the context is asked to do."""

    def __init__(self, handle: NativeHandle, model: Model, *, kv_unified: bool, abort_flag: CData | None):
        self._handle = handle
        self._abort_flag = abort_flag
        self._thread_id = threading.get_ident()
        self._left_over: deque[Callable[[], None]] = deque()  # what other threads want freed on this context's
        pointer = handle.pointer()
        self.model = model
        self.kv_unified = kv_unified
        self.n_ctx: int = lib.llama_n_ctx(pointer)
        """Cells of the whole pool."""
        self.n_ctx_seq: int = lib.llama_n_ctx_seq(pointer)
        """Cells that one sequence can use."""
        self.n_batch: int = lib.llama_n_batch(pointer)
        """Tokens that one batch can have."""
        self.n_ubatch: int = lib.llama_n_ubatch(pointer)
        self.n_seq_max: int = lib.llama_n_seq_max(pointer)
        self._causal: bool = lib.llama_get_causal_attn(pointer)
        self._memory_or_null = lib.llama_get_memory(pointer)
        # Asked once: a model may be closed, for new users, while its contexts keep working.
        self._n_vocab = model.vocab.n_tokens
        self._n_positions = model.n_positions
        self._is_recurrent = model.is_recurrent
        self._is_hybrid = model.is_hybrid

    @property
    def closed(self) -> bool:
        return self._handle.closed

    @property
    def has_memory(self) -> bool:
        """False for a model that keeps no KV cache (an encoder): it has no sequences to save."""
        return bool(self._memory_or_null != ffi.NULL)

    def check_thread(self) -> None:
        """Raises WrongThreadError on another thread than the context's, unless it is closed: then any thread may."""
        if threading.get_ident() != self._thread_id and not self._handle.closed:
            raise WrongThreadError(
                f"this context belongs to thread {self._thread_id} and was called from {threading.get_ident()}: "
                "call it there, or create it on this thread"
            )

    def native_pointer(self) -> CData:
        """The pointer, for a call on the right thread. Raises WrongThreadError, ClosedError."""
        return self._context()

    def _context(self) -> CData:
        self.check_thread()
        self._free_left_over()
        return self._handle.pointer()

    def native_handle(self) -> NativeHandle:
        """For users of the native context that outlive `close`. Raises WrongThreadError, ClosedError."""
        self._context()
        return self._handle

    def on_its_thread(self, free: Callable[[CData], None]) -> Callable[[CData], None]:
        """`free`, for what must not be freed during a call of this context: another thread leaves it to this one."""

        def free_there(pointer: CData) -> None:
            if threading.get_ident() == self._thread_id or self._handle.closed:
                free(pointer)
            else:
                self._left_over.append(lambda: free(pointer))
                if self._handle.closed:  # meanwhile: its thread may not look again
                    self._free_left_over()

        return free_there

    def _free_left_over(self) -> None:
        while self._left_over:
            try:
                free = self._left_over.popleft()
            except IndexError:  # after the close more than one thread may do this
                return
            free()

    def _memory(self) -> CData:
        self._context()
        if not self.has_memory:
            raise UnsupportedError("this model has no memory: it has no sequences to change or save")
        return self._memory_or_null

    def _check_seq(self, seq_id: int) -> int:
        if not 0 <= index(seq_id) < self.n_seq_max:
            raise InvalidArgumentError(
                f"sequence {seq_id} does not exist: this context has sequences 0 to {self.n_seq_max - 1} (n_seq_max)"
            )
        return seq_id

    def request_abort(self) -> None:
        """Makes the decode or encode that is running raise AbortedError soon (CPU only), or else the next one.

        From any thread. Raises UnsupportedError for a borrowed context, whose owner has the native callback.
        """
        if self._abort_flag is None:
            raise UnsupportedError("this context is borrowed: ask its owner to abort")
        with self._handle.use():
            lib.pyggml_abort_flag_set(self._abort_flag, True)

    def close(self) -> None:
        """Frees the context, at once or when the last view of its outputs is gone. A second call does nothing.

        Raises WrongThreadError on another thread than the context's own.
        """
        if not self._handle.closed:
            self._context()
            self._handle.close()
            self._free_left_over()  # what came between the two

    def __del__(self) -> None:
        handle: NativeHandle | None = getattr(self, "_handle", None)
        if handle is not None and not handle.closed:
            if handle.owned:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
            handle.close()  # it has no other user: this was the last reference
            self._free_left_over()


def own_context(pointer: CData, model: NativeHandle) -> tuple[NativeHandle, CData]:
    """A handle that frees a new context and then releases its model, and the context's abort flag."""
    flag = lib.pyggml_abort_flag_new(pointer)
    if flag == ffi.NULL:
        lib.llama_free(pointer)
        raise OutOfMemoryError("no memory for the context's abort flag")
    try:
        model.acquire()
    except BaseException:  # closed by another thread meanwhile
        lib.llama_free(pointer)
        lib.pyggml_abort_flag_free(flag)
        raise

    def free(context: CData) -> None:
        lib.llama_free(context)
        lib.pyggml_abort_flag_free(flag)
        model.release()

    return NativeHandle(pointer, free, "context"), flag


def borrow_context(pointer: CData, model: NativeHandle, owner: object) -> NativeHandle:
    """A handle to a context that other code frees; it keeps `owner` and does not count as a user of the model."""
    if pointer == ffi.NULL:
        raise InvalidArgumentError("the context pointer is NULL")
    return NativeHandle(pointer, None, "context", keep=(owner, model))
