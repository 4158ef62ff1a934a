"""The lifetime of one native object: who uses it, and when it is freed.

A handle is freed once it is closed *and* has no user left, so that closing a model before its contexts, or a
context before a view of its logits, is safe. A borrowed handle is never freed here. Any thread may use a handle; it
knows nothing of what it holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyggml.errors import ClosedError
from pyggml.ffi import CData


class NativeHandle:
    """A native pointer with a user count.

    `free` is called once, on the thread that releases it last; None: a borrowed pointer. `keep` is kept alive as long
    as the pointer may be used: the object that owns it.
    """

    def __init__(self, pointer: CData, free: Callable[[CData], None] | None, what: str, keep: object = None):
        self._pointer = pointer
        self._free = free
        self._what = what
        self._keep = keep
        self._n_users = 0
        self._closed = False
        # Reentrant: a finalizer that releases this handle can run at any allocation inside the lock.
        self._lock = threading.RLock()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def owned(self) -> bool:
        return self._free is not None

    def pointer(self) -> CData:
        """The pointer, for a caller that cannot race with `close`. Raises ClosedError."""
        if self._closed:
            raise ClosedError(f"this {self._what} is closed: create a new one")
        return self._pointer

    def acquire(self) -> CData:
        """Counts one more user, who must `release`. Raises ClosedError."""
        with self._lock:
            pointer = self.pointer()
            self._n_users += 1
            return pointer

    def release(self) -> None:
        """Takes one user back; frees the object if it was the last one of a closed handle."""
        with self._lock:
            self._n_users -= 1
            free_now = self._take_if_unused()
        if free_now is not None:
            free_now()

    @contextmanager
    def use(self) -> Iterator[CData]:
        """The pointer, kept from being freed inside the block, also if another thread closes the handle meanwhile."""
        pointer = self.acquire()
        try:
            yield pointer
        finally:
            self.release()

    def close(self) -> None:
        """Takes no new user; frees the object now or when its last user releases it. A second call does nothing."""
        with self._lock:
            self._closed = True
            free_now = self._take_if_unused()
        if free_now is not None:
            free_now()

    def _take_if_unused(self) -> Callable[[], None] | None:
        if not self._closed or self._n_users > 0:
            return None
        pointer, free = self._pointer, self._free
        self._free = None
        self._keep = None
        return None if free is None else lambda: free(pointer)
