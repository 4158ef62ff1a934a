"""One parked state in a file: written and read in pieces, on the disk's thread, and judged by a checksum.

The file has no name from the moment it is made, so it is nobody else's to read, and it goes when the process does.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyggml_server.engine.background.piecewise_file import Bytes, PiecewiseFile, StateFileError

__all__ = ["Bytes", "StateFile", "StateFileError"]


class StateFile(PiecewiseFile):
    """`sizes_bytes`: of the parts of the state, which are written one behind the other. Any thread, one at a time."""

    def __init__(self, folder: Path, sizes_bytes: Sequence[int]) -> None:
        self.sizes_bytes = tuple(sizes_bytes)
        super().__init__(f"a state of {self.n_bytes} bytes")
        self._folder = folder
        self._checksum = 0

    @property
    def n_bytes(self) -> int:
        return sum(self.sizes_bytes)

    def write(self, parts: Sequence[Bytes]) -> None:
        """Make the file and fill it. Raises StateFileError: no folder, no room, a fault of the device, abandoned."""
        self._open()
        try:
            os.posix_fallocate(self._fd, 0, self.n_bytes)  # no room is told before anything is written
            self._checksum = self._write_parts(parts)
            self._leave_cache()
        except OSError as error:
            raise StateFileError(f"{self._what} cannot be written: {error.strerror}") from error

    def read(self, parts: Sequence[Bytes]) -> None:
        """Fill these, which have the sizes of what was written. Raises StateFileError."""
        try:
            checksum = self._read_parts(parts)
            self._leave_cache()
        except OSError as error:
            raise StateFileError(f"{self._what} cannot be read: {error.strerror}") from error
        if checksum != self._checksum:
            raise StateFileError(f"{self._what} has changed on the disk: its checksum is another one")

    def _open(self) -> None:
        try:
            self._fd, name = tempfile.mkstemp(prefix="state-", dir=self._folder)
            Path(name).unlink()
        except OSError as error:
            raise StateFileError(f"no file can be made in {self._folder}: {error.strerror}") from error
