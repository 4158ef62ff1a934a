"""A thread that maps memory to a stretch of address space piece by piece, ahead of its use.

Owns the thread and the address space; knows nothing of devices. The thread runs while there are pieces to map and the
populator is not closed. The methods are the owner's, on one thread.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from pyggml.errors import OutOfMemoryError
from pyggml.ffi import CData, ffi, lib


class Populator:
    """`n_pieces` of `piece_bytes` each, mapped from the first one on. Raises OutOfMemoryError without address space.

    `memory` is all of it, as uint8[n_pieces * piece_bytes]; its slices keep the address space, also after `close`.
    """

    def __init__(self, n_pieces: int, piece_bytes: int):
        n_bytes = n_pieces * piece_bytes
        base = lib.pyggml_host_reserve(n_bytes, piece_bytes)
        if base == ffi.NULL:
            raise OutOfMemoryError(f"no address space for {n_bytes} bytes: lower the limit of the pool")
        self._base: CData = ffi.gc(base, lambda pointer: lib.pyggml_host_release(pointer, n_bytes))
        self.memory: npt.NDArray[np.uint8] = np.frombuffer(ffi.buffer(self._base, n_bytes), np.uint8)
        self._piece_bytes = piece_bytes
        self._changed = threading.Condition()
        self._n_wanted = 0
        self._n_mapped = 0
        self._is_mapping = False
        self.has_failed = False
        """The system had no more memory. Nothing more is mapped."""

    @property
    def n_mapped(self) -> int:
        """Pieces that are mapped."""
        return self._n_mapped

    def piece(self, index: int) -> CData:
        """The address of a piece."""
        return ffi.cast("void *", int(ffi.cast("uintptr_t", self._base)) + index * self._piece_bytes)

    def want(self, n_pieces: int) -> None:
        """Has the thread map that many pieces, if it has not mapped them already. Does not block."""
        with self._changed:
            self._n_wanted = max(self._n_wanted, n_pieces)
            if self._n_mapped < self._n_wanted and not self._is_mapping and not self.has_failed:
                self._is_mapping = True
                threading.Thread(target=self._run, name="pyggml populator", daemon=True).start()

    def wait_mapped(self, n_pieces: int) -> bool:
        """Blocks until that many wanted pieces are mapped; False if that cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_mapped >= n_pieces or not self._is_mapping)
            return self._n_mapped >= n_pieces

    def shrink(self, n_pieces: int) -> None:
        """Gives the memory of all later pieces back. Blocks while the thread maps one."""
        with self._changed:
            self._n_wanted = min(self._n_wanted, n_pieces)
            self._changed.wait_for(lambda: not self._is_mapping)
            for index in range(n_pieces, self._n_mapped):
                lib.pyggml_host_discard(self.piece(index), self._piece_bytes)
            self._n_mapped = min(self._n_mapped, n_pieces)

    def close(self) -> None:
        """Gives all memory back that no slice of `memory` keeps. Blocks while the thread maps a piece."""
        self.shrink(0)
        self.memory = self.memory[:0]

    def _run(self) -> None:
        while self._has_more():
            mapped = lib.pyggml_host_populate(self.piece(self._n_mapped), self._piece_bytes)
            with self._changed:
                self._n_mapped += mapped
                self.has_failed = not mapped
                self._changed.notify_all()

    def _has_more(self) -> bool:
        with self._changed:
            self._is_mapping = self._n_mapped < self._n_wanted and not self.has_failed
            self._changed.notify_all()
            return self._is_mapping
