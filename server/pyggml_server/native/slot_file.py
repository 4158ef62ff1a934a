"""Slot files in llama-server's form, from and to states in host memory. Any thread; blocks; the GIL is released.

A slot's checkpoints come behind the state, where llama-server does not look: files go both ways between the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyggml.state_files import read_server_file, write_state_file
from pyggml.state_format import SavedMedia, parse_state
from pyggml_server.native.border import StateError, lib
from pyggml_server.native.media import MediaRun

State = npt.NDArray[np.uint8]

_FOOTER = struct.Struct("<Q8s")  # bytes of the checkpoints before it, and the mark
_MARK = b"pyggmlCP"


@dataclass(frozen=True, slots=True)
class SlotFile:
    """What a file holds. `checkpoints` is empty where the memory needs none, and in llama-server's files.

    tokens  LLAMA_TOKEN_NULL where they are of a run.
    """

    tokens: list[int]
    runs: tuple[MediaRun, ...]
    state: State
    checkpoints: bytes


def write(
    path: str, states: list[State], tokens: Sequence[int], media: Sequence[SavedMedia], checkpoints: bytes
) -> int:
    """Write the last of the states, which is taken out of the list. Returns the bytes written.

    tokens  negative where they are of an image or a sound.

    The file appears whole or not at all. Raises OSError and PyggmlError.
    """
    trailer = checkpoints + _FOOTER.pack(len(checkpoints), _MARK) if checkpoints else b""
    array = np.maximum(np.asarray(tokens, np.int32), lib.LLAMA_TOKEN_NULL)
    return write_state_file(path, states.pop(), array, wrap_tokens=True, media=media, trailer=trailer)


def check_whole(state: State) -> None:
    """Raises StateError where a state of a plain KV cache is cut off or damaged in what is not its numbers."""
    parse_state(state)


def read(path: str, n_ctx: int, n_vocab: int, has_media: bool) -> SlotFile:
    """A file of at most `n_ctx` tokens; only if `has_media`, of images and sounds too. Raises OSError, PyggmlError."""
    tokens, media, state = read_server_file(path, n_ctx)
    if media and not has_media:
        raise StateError("Cannot restore media tokens without an mmproj")
    runs = tuple(MediaRun.of_saved(start, saved) for start, saved in media)
    if not _is_valid(tokens, runs, n_vocab):
        raise StateError("Invalid tokens in slot save file")
    n_trailer = 0
    if len(state) >= _FOOTER.size:
        n_bytes, mark = _FOOTER.unpack(state[-_FOOTER.size :].tobytes())
        if mark == _MARK and n_bytes <= len(state) - _FOOTER.size:
            n_trailer = n_bytes + _FOOTER.size
    end = len(state) - n_trailer
    return SlotFile(
        tokens.tolist(), runs, state[:end], state[end : len(state) - min(n_trailer, _FOOTER.size)].tobytes()
    )


def _is_valid(tokens: npt.NDArray[np.int32], runs: Sequence[MediaRun], n_vocab: int) -> bool:
    """Whether all tokens are of the vocabulary but those of the runs, one behind the other, which are none."""
    is_null = tokens == lib.LLAMA_TOKEN_NULL
    end = 0
    for run in runs:
        if run.start < end or run.n_tokens < 1 or run.n_pos < 1 or run.start + run.n_tokens > len(tokens):
            return False
        end = run.start + run.n_tokens
        if not is_null[run.start : end].all():
            return False
    n_null = sum(run.n_tokens for run in runs)
    return bool(is_null.sum() == n_null and (is_null | ((tokens >= 0) & (tokens < n_vocab))).all())
