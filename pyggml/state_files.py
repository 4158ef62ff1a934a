"""Sequence files without a context: written from a state, read as one. Any thread; blocks; the GIL is released.

`Context.save_state_file` and `load_state_file` are for those who need no state in between.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyggml import state_format
from pyggml.errors import InvalidArgumentError, PyggmlError, StateError
from pyggml.state_format import MEDIA_REFUSED, Buffer, Rows, SavedMedia, split_file, state_to_file_parts, unwrap_tokens

PathLike = str | os.PathLike[str]


@contextmanager
def appearing_whole(path: PathLike) -> Iterator[Path]:
    """Another name, to write to: what is there at the end gets this one; nothing does if that fails."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}-{threading.get_ident()}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_state_file(
    path: PathLike,
    state: Buffer,
    tokens: npt.NDArray[np.int32],
    *,
    wrap_tokens: bool = False,
    media: Sequence[SavedMedia] = (),
    trailer: bytes = b"",
) -> int:
    """Writes what `Context.save_state_file` writes of a sequence with this state. Returns the bytes written.

    media  the images and sounds that some of the tokens stand for, which need `wrap_tokens`.

    llama.cpp does not read the `trailer` behind the state. The file appears whole or not at all. Raises OSError, and
    StateError where `state` is none.
    """
    parts = (*state_to_file_parts(state, state_format.wrap_tokens(tokens, media) if wrap_tokens else tokens), trailer)
    with appearing_whole(path) as partial, partial.open("wb", buffering=0) as file:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[file.write(left) :]
    return sum(len(part) for part in parts)


def read_state_file(path: PathLike, max_tokens: int | None = None) -> tuple[npt.NDArray[np.int32], Rows]:
    """The tokens of a sequence file, of stock llama.cpp too, and its state, as `Context.restore_state` reads it.

    Raises OSError, StateError, and InvalidArgumentError for more than `max_tokens` tokens.
    """
    tokens, media, state = read_server_file(path, max_tokens)
    if media:
        raise StateError(f"{os.fspath(path)}: {MEDIA_REFUSED.format(len(media))}")
    return tokens, state


def read_server_file(
    path: PathLike, max_tokens: int | None = None
) -> tuple[npt.NDArray[np.int32], list[SavedMedia], Rows]:
    """The same with the images and sounds that some of the tokens, each -1, stand for."""
    file = np.fromfile(path, np.uint8)
    try:
        packed, state = split_file(file)
        tokens, media = unwrap_tokens(packed)
        if max_tokens is not None and len(tokens) > max_tokens:
            raise InvalidArgumentError(f"the file has {len(tokens)} tokens, allowed are at most {max_tokens}")
    except PyggmlError as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None
    return tokens, media, state
