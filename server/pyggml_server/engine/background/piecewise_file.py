"""A file whose parts are written and read in pieces, on the disk's thread. It does not stay in the page cache."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 4 * 1024 * 1024
#: Between two waits for the device: so much of the page cache is taken at most.
SYNCED_BYTES = 32 * 1024 * 1024

Bytes = npt.NDArray[np.uint8]


class StateFileError(Exception):
    """The file cannot be written, or what it has is not what was written; the message says which and why."""


class PiecewiseFile:
    """`what` is in it: for messages. Any thread, one at a time, but for `abandon`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._fd = -1
        self._is_abandoned = threading.Event()

    def abandon(self) -> None:
        """Have `write` or `read` on another thread end soon, with an error."""
        self._is_abandoned.set()

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _write_parts(self, parts: Sequence[Bytes], at: int = 0, checksum: int = 0) -> int:
        """One behind the other, from the place `at` on. Returns the checksum that began with `checksum`."""
        for part in parts:
            for start in range(0, len(part), PIECE_BYTES):
                piece = part[start : start + PIECE_BYTES].data
                checksum = zlib.crc32(piece, checksum)
                at = self._write_piece(piece, at)
        return checksum

    def _read_parts(self, parts: Sequence[Bytes], at: int = 0, checksum: int = 0) -> int:
        """Fill these with what is there; as `_write_parts`."""
        for part in parts:
            for start in range(0, len(part), PIECE_BYTES):
                piece = part[start : start + PIECE_BYTES].data
                at = self._read_piece(piece, at)
                checksum = zlib.crc32(piece, checksum)
        return checksum

    def _write_piece(self, piece: memoryview, at: int) -> int:
        while piece:
            self._check_wanted()
            n_written = os.pwrite(self._fd, piece, at)
            piece, at = piece[n_written:], at + n_written
        if at % SYNCED_BYTES < PIECE_BYTES:
            self._leave_cache()
        return at

    def _read_piece(self, piece: memoryview, at: int) -> int:
        while piece:
            self._check_wanted()
            n_read = os.preadv(self._fd, [piece], at)
            if n_read == 0:
                raise StateFileError(f"{self._what} has become shorter on the disk: {at} bytes")
            piece, at = piece[n_read:], at + n_read
        return at

    def _leave_cache(self) -> None:
        os.fdatasync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _check_wanted(self) -> None:
        if self._is_abandoned.is_set():
            raise StateFileError("nobody wants it any more")
