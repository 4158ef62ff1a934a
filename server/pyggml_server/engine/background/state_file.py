"""One parked state in a file: written and read in pieces, on the disk's thread, and judged by a checksum.

The file has no name from the moment it is made, so it is nobody else's to read, and it goes when the process does. What
was written or read does not stay in the page cache.
"""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 4 * 1024 * 1024
#: Between two waits for the device: so much of the page cache is taken at most.
SYNCED_BYTES = 32 * 1024 * 1024

Bytes = npt.NDArray[np.uint8]


class StateFileError(Exception):
    """The file cannot be written, or what it has is not what was written; the message says which and why."""


class StateFile:
    """`sizes_bytes`: of the parts of the state, which are written one behind the other. Any thread, one at a time."""

    def __init__(self, folder: Path, sizes_bytes: Sequence[int]) -> None:
        self.sizes_bytes = tuple(sizes_bytes)
        self._folder = folder
        self._fd = -1
        self._checksum = 0
        self._is_abandoned = threading.Event()

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes_bytes)

    def abandon(self) -> None:
        """Have `write` or `read` on another thread end soon, with an error."""
        self._is_abandoned.set()

    def write(self, parts: Sequence[Bytes]) -> None:
        """Make the file and fill it. Raises StateFileError: no folder, no room, a fault of the device, abandoned."""
        self._open()
        try:
            os.posix_fallocate(self._fd, 0, self.n_bytes)  # no room is told before anything is written
            self._checksum, at = 0, 0
            for part in parts:
                for start in range(0, len(part), PIECE_BYTES):
                    at = self._write_piece(part[start : start + PIECE_BYTES].data, at)
            self._leave_cache()
        except OSError as error:
            raise StateFileError(f"a state of {self.n_bytes} bytes cannot be written: {error.strerror}") from error

    def read(self, parts: Sequence[Bytes]) -> None:
        """Fill these, which have the sizes of what was written. Raises StateFileError."""
        checksum, at = 0, 0
        try:
            for part in parts:
                for start in range(0, len(part), PIECE_BYTES):
                    piece = part[start : start + PIECE_BYTES].data
                    at = self._read_piece(piece, at)
                    checksum = zlib.crc32(piece, checksum)
            self._leave_cache()
        except OSError as error:
            raise StateFileError(f"a state of {self.n_bytes} bytes cannot be read: {error.strerror}") from error
        if checksum != self._checksum:
            raise StateFileError(
                f"a state of {self.n_bytes} bytes has changed on the disk: its checksum is another one"
            )

    def close(self) -> None:
        """Give the disk's room back. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> None:
        try:
            self._fd, name = tempfile.mkstemp(prefix="state-", dir=self._folder)
            Path(name).unlink()
        except OSError as error:
            raise StateFileError(f"no file can be made in {self._folder}: {error.strerror}") from error

    def _write_piece(self, piece: memoryview, at: int) -> int:
        self._checksum = zlib.crc32(piece, self._checksum)
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
                raise StateFileError(f"a state of {self.n_bytes} bytes has become shorter on the disk: {at} bytes")
            piece, at = piece[n_read:], at + n_read
        return at

    def _leave_cache(self) -> None:
        os.fdatasync(self._fd)
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def _check_wanted(self) -> None:
        if self._is_abandoned.is_set():
            raise StateFileError("nobody wants it any more")
