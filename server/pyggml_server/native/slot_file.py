"""Slot files in llama-server's form, from and to states in host memory. Any thread; blocks; the GIL is released."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyggml.state_files import read_state_file, write_state_file
from pyggml_server.native.border import StateError

State = npt.NDArray[np.uint8]


def write(path: str, states: list[State], tokens: Sequence[int]) -> int:
    """Write the last of the states, which is taken out of the list. Returns the bytes written.

    The file appears whole or not at all. Raises OSError and PyggmlError.
    """
    return write_state_file(path, states.pop(), np.asarray(tokens, np.int32), wrap_tokens=True)


def read(path: str, n_ctx: int, n_vocab: int) -> tuple[list[int], State]:
    """The tokens, at most `n_ctx`, and the state. Raises OSError and PyggmlError."""
    tokens, state = read_state_file(path, n_ctx)
    check_tokens(tokens, n_vocab)
    return tokens.tolist(), state


def check_tokens(tokens: npt.NDArray[np.int32], n_vocab: int) -> None:
    """Raises StateError where one is none of the vocabulary's."""
    if ((tokens < 0) | (tokens >= n_vocab)).any():
        raise StateError("Invalid tokens in slot save file")
