"""Slot files in llama-server's form, from and to states in host memory. Any thread; blocks; the GIL is released.

A slot's checkpoints come behind the state, where llama-server does not look: files go both ways between the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyggml.state_files import read_state_file, write_state_file
from pyggml.state_format import parse_state
from pyggml_server.native.border import StateError

State = npt.NDArray[np.uint8]

_FOOTER = struct.Struct("<Q8s")  # bytes of the checkpoints before it, and the mark
_MARK = b"pyggmlCP"


@dataclass(frozen=True, slots=True)
class SlotFile:
    """What a file holds. `checkpoints` is empty where the memory needs none, and in llama-server's files."""

    tokens: list[int]
    state: State
    checkpoints: bytes


def write(path: str, states: list[State], tokens: Sequence[int], checkpoints: bytes) -> int:
    """Write the last of the states, which is taken out of the list. Returns the bytes written.

    The file appears whole or not at all. Raises OSError and PyggmlError.
    """
    trailer = checkpoints + _FOOTER.pack(len(checkpoints), _MARK) if checkpoints else b""
    array = np.asarray(tokens, np.int32)
    return write_state_file(path, states.pop(), array, wrap_tokens=True, trailer=trailer)


def check_whole(state: State) -> None:
    """Raises StateError where a state of a plain KV cache is cut off or damaged in what is not its numbers."""
    parse_state(state)


def read(path: str, n_ctx: int, n_vocab: int) -> SlotFile:
    """A file of at most `n_ctx` tokens. Raises OSError and PyggmlError."""
    tokens, state = read_state_file(path, n_ctx)
    if ((tokens < 0) | (tokens >= n_vocab)).any():
        raise StateError("Invalid tokens in slot save file")
    n_trailer = 0
    if len(state) >= _FOOTER.size:
        n_bytes, mark = _FOOTER.unpack(state[-_FOOTER.size :].tobytes())
        if mark == _MARK and n_bytes <= len(state) - _FOOTER.size:
            n_trailer = n_bytes + _FOOTER.size
    end = len(state) - n_trailer
    return SlotFile(tokens.tolist(), state[:end], state[end : len(state) - min(n_trailer, _FOOTER.size)].tobytes())
