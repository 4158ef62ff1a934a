"""One prompt of the prompt cache in a file of `--cache-disk`: its tokens, its checkpoints, its states.

On the disk's thread. A file appears whole: it is written under another name first. Its head tells whose it is and is
checked together with the tokens when a server starts; the rest when it is read.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from pyggml_server.engine.background.piecewise_file import Bytes, PiecewiseFile, StateFileError
from pyggml_server.engine.background.prompt_folder import PARTIAL, PROMPT, PromptFolder

Tokens = npt.NDArray[np.int32]

MAGIC, VERSION = b"pyggmlkp", 1
N_STATES_MAX = 2  # the target's, the draft's
# magic, version, states, origin, adapters, tokens, bytes of checkpoints, of each state, checksum of the rest
_HEAD = struct.Struct("<8sII32s32sQQQQI")
_CHECKSUM = struct.Struct("<I")  # of the head and the tokens
HEAD_BYTES = _HEAD.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class PromptHead:
    """origin: what its states depend on; adapters: the scales of its tokens. Both as digests of 32 bytes."""

    origin: bytes
    adapters: bytes
    n_tokens: int
    n_checkpoint_bytes: int
    sizes_bytes: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Of the whole file."""
        return HEAD_BYTES + 4 * self.n_tokens + self.n_checkpoint_bytes + sum(self.sizes_bytes)

    def packed(self, checksum: int) -> bytes:
        sizes = (*self.sizes_bytes, *[0] * (N_STATES_MAX - len(self.sizes_bytes)))
        counts = self.n_tokens, self.n_checkpoint_bytes
        return _HEAD.pack(MAGIC, VERSION, len(self.sizes_bytes), self.origin, self.adapters, *counts, *sizes, checksum)

    @classmethod
    def unpacked(cls, data: bytes) -> tuple[Self, int]:
        """The head, and the checksum of what follows the tokens. Raises StateFileError."""
        magic, version, n_states, origin, adapters, n_tokens, n_checkpoint_bytes, *sizes, checksum = _HEAD.unpack(data)
        if magic != MAGIC or version != VERSION or not 1 <= n_states <= N_STATES_MAX:
            raise StateFileError("it is no prompt of this version")
        return cls(origin, adapters, n_tokens, n_checkpoint_bytes, tuple(sizes[:n_states])), checksum


class PromptFile(PiecewiseFile):
    """`name` in the folder."""

    def __init__(self, folder: PromptFolder, name: str, n_bytes: int) -> None:
        super().__init__(f"a prompt of {n_bytes} bytes")
        self._folder = folder
        self.name = name

    def write(self, head: PromptHead, tokens: Tokens, checkpoints: bytes, states: Sequence[Bytes], at_s: float) -> None:
        """Make it, used last at `at_s`. Raises StateFileError; there is no such file then."""
        partial = self.name.removesuffix(PROMPT) + PARTIAL
        body = [np.array(bytearray(checkpoints), np.uint8), *states]
        try:
            self._folder.remove(partial)
            self._fd = self._folder.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.posix_fallocate(self._fd, 0, head.n_bytes)  # no room is told before anything is written
            checksum = self._write_parts(body, HEAD_BYTES + tokens.nbytes)
            packed = head.packed(checksum)
            whole = packed + _CHECKSUM.pack(_checksum(packed, tokens)) + tokens.tobytes()
            self._write_piece(memoryview(whole), 0)
            self._leave_cache()
            self._folder.rename(partial, self.name)
            self._folder.set_used(self.name, at_s)
        except OSError as error:
            raise StateFileError(f"{self._what} cannot be written: {error.strerror}") from error
        finally:
            self.close()
            self._folder.remove(partial)

    def read_head(self) -> tuple[PromptHead, Tokens, float]:
        """What it is, and when it was used last. Raises StateFileError."""
        try:
            self._fd = self._folder.open(self.name, os.O_RDONLY)
            head, tokens, _ = self._head()
            about = os.fstat(self._fd)
        except OSError as error:
            raise StateFileError(f"{self._what} cannot be read: {error.strerror or error}") from error
        finally:
            self.close()
        if about.st_size != head.n_bytes:
            raise StateFileError(f"{self._what} should have {head.n_bytes}")
        return head, tokens, about.st_mtime

    def read(self, head: PromptHead, place: Callable[[Tokens, bytes], list[Bytes]]) -> None:
        """`place` is given tokens and checkpoints and says where the states go. Raises StateFileError, and what `place`
        raises."""
        try:
            self._fd = self._folder.open(self.name, os.O_RDONLY)
            found, tokens, expected = self._head()
            if found != head:
                raise StateFileError(f"{self._what} is another one")
            at = HEAD_BYTES + tokens.nbytes
            checkpoints = np.empty(head.n_checkpoint_bytes, np.uint8)
            checksum = self._read_parts([checkpoints], at)
            states = place(tokens, checkpoints.tobytes())
            checksum = self._read_parts(states, at + len(checkpoints), checksum)
            self._leave_cache()
        except OSError as error:
            raise StateFileError(f"{self._what} cannot be read: {error.strerror or error}") from error
        finally:
            self.close()
        if checksum != expected:
            raise StateFileError(f"{self._what} has changed on the disk: its checksum is another one")

    def _head(self) -> tuple[PromptHead, Tokens, int]:
        """Head, tokens, and the checksum of the rest."""
        packed, said = np.empty(_HEAD.size, np.uint8), np.empty(_CHECKSUM.size, np.uint8)
        self._read_parts([packed, said])
        head, checksum = PromptHead.unpacked(packed.tobytes())
        if head.n_bytes > os.fstat(self._fd).st_size:
            raise StateFileError(f"{self._what} has become shorter on the disk")
        tokens = np.empty(4 * head.n_tokens, np.uint8)
        self._read_parts([tokens], HEAD_BYTES)
        if _CHECKSUM.unpack(said.tobytes())[0] != _checksum(packed.tobytes(), tokens):
            raise StateFileError(f"{self._what} has changed on the disk: the checksum of its head is another one")
        return head, tokens.view(np.int32), checksum


def _checksum(packed: bytes, tokens: npt.NDArray[np.generic]) -> int:
    return zlib.crc32(tokens.tobytes(), zlib.crc32(packed))
