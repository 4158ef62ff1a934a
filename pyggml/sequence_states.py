"""The state of one sequence: out of a context into bytes or a file, and back, into any sequence of any like context.

On the context's thread; blocks while it copies (the GIL is released). Buffers are read and written in place.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from pyggml import state_format
from pyggml.errors import InvalidArgumentError, NoRoomError, PyggmlError, StateError
from pyggml.ffi import CData, call, ffi, lib
from pyggml.handle import NativeHandle
from pyggml.model import Model
from pyggml.sequences import SequenceMemory
from pyggml.state_files import appearing_whole, read_state_file
from pyggml.state_format import (
    LAST_POSITION,
    MAGIC_BYTES,
    SEQUENCE_HEADER_BYTES,
    Buffer,
    byte_view,
    first_positions,
)
from pyggml.vocab import Tokens, token_array


class StateFlags(enum.IntFlag):
    """`PARTIAL_ONLY`: only what cannot be rebuilt by removing positions (window and recurrent caches).
    `ON_DEVICE`: rows stay in device buffers, the bytes only name them; one such state per sequence."""

    NONE = lib.LLAMA_STATE_SEQ_FLAGS_NONE
    PARTIAL_ONLY = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
    ON_DEVICE = lib.LLAMA_STATE_SEQ_FLAGS_ON_DEVICE


class SequenceStates(SequenceMemory):
    """Saving and restoring of Context."""

    def __init__(self, handle: NativeHandle, model: Model, *, kv_unified: bool, abort_flag: CData | None):
        super().__init__(handle, model, kv_unified=kv_unified, abort_flag=abort_flag)
        self._on_device: dict[int, bytes] = {}  # sequence -> the bytes that name its rows on the device

    def state_size(self, seq_id: int, flags: StateFlags = StateFlags.NONE) -> int:
        """Bytes that `save_state` needs for the sequence as it is now. Walks the cells: not free."""
        self._check_savable(seq_id)
        size = ffi.new("size_t *")
        call(lib.pyggml_state_size, self._context(), seq_id, int(flags), size, error=StateError)
        return int(size[0])

    def save_state(
        self, seq_id: int, out: Buffer | None = None, flags: StateFlags = StateFlags.NONE
    ) -> npt.NDArray[np.uint8]:
        """The sequence's state as uint8[n]: a view of the part of `out` that was filled, or a new array.

        `out` is any writable contiguous buffer. Raises InvalidArgumentError if it is too small (nothing is written),
        UnappliedUpdateError while a shift or copy waits for the next decode, StateError.
        """
        n_bytes = self.state_size(seq_id, flags)
        target: npt.NDArray[np.uint8] = np.empty(n_bytes, np.uint8) if out is None else _as_uint8(out, writable=True)
        if len(target) < n_bytes:
            raise InvalidArgumentError(f"the state needs {n_bytes} bytes, the buffer has {len(target)}")
        if flags & StateFlags.ON_DEVICE:
            self._on_device.pop(seq_id, None)
        written = ffi.new("size_t *")
        buffer = ffi.from_buffer("uint8_t[]", target, require_writable=True)
        arguments = (self._context(), buffer, len(target), seq_id, int(flags), written)
        call(lib.pyggml_state_get, *arguments, error=StateError)
        state = target[: written[0]]
        if flags & StateFlags.ON_DEVICE:
            self._on_device[seq_id] = state.tobytes()
        return state

    def restore_state(self, data: Buffer, seq_id: int, flags: StateFlags = StateFlags.NONE) -> int:
        """Makes sequence `seq_id` the one saved in `data`, of whatever sequence id, and returns the bytes read.

        What the sequence held before is removed first (not with PARTIAL_ONLY). `flags` must be those of the save.
        Raises NoRoomError for too few free cells and StateError for a state that is cut off, damaged or of another
        model; the sequence is empty then.
        """
        source = _as_uint8(data, writable=False)
        self.check_restorable(source, seq_id, flags)
        if not flags & StateFlags.PARTIAL_ONLY:
            self.seq_remove(seq_id)
        n_read, no_room = ffi.new("size_t *"), ffi.new("bool *")
        buffer = ffi.from_buffer("uint8_t[]", source)
        arguments = (self._context(), buffer, len(source), seq_id, int(flags), n_read, no_room)
        try:
            call(lib.pyggml_state_set, *arguments, error=StateError)
        except StateError as error:
            self._empty_after_failure(seq_id)
            if no_room[0] or self.needs_more_cells(source):
                raise NoRoomError(f"{error}: remove a sequence first") from None
            raise
        return int(n_read[0])

    def save_state_file(
        self,
        path: str | os.PathLike[str],
        seq_id: int,
        tokens: Iterable[int] | Tokens = (),
        *,
        wrap_tokens: bool = False,
    ) -> int:
        """Writes the sequence in llama.cpp's sequence file format, with the `tokens` that it was made from.

        `wrap_tokens` writes them as llama-server does in its slot files; `load_state_file` and llama-server read both
        kinds. Returns the bytes written. The file appears whole or not at all. Raises as `save_state` does.
        """
        self._check_savable(seq_id)
        array = token_array(tokens, self._n_vocab)
        if wrap_tokens:
            array = state_format.wrap_tokens(array)
        written = ffi.new("size_t *")
        source = ffi.from_buffer("llama_token[]", array)
        with appearing_whole(path) as partial:
            arguments = (self._context(), os.fsencode(partial), seq_id, source, len(array), written)
            call(lib.pyggml_state_save_file, *arguments, error=StateError)
        return int(written[0])

    def load_state_file(self, path: str | os.PathLike[str], seq_id: int, max_tokens: int | None = None) -> Tokens:
        """Restores sequence `seq_id` from a sequence file, of stock llama.cpp too, and returns the file's tokens.

        Raises InvalidArgumentError if they are more than `max_tokens` and OSError if the file cannot be read (nothing
        has changed), else as `restore_state`.
        """
        self._memory()
        self._check_seq(seq_id)
        tokens, state = read_state_file(path, max_tokens)
        try:
            self.restore_state(state, seq_id)
        except PyggmlError as error:
            raise type(error)(f"{os.fspath(path)}: {error}") from None
        return tokens

    def check_transferable(self, seq_id: int) -> None:
        """Raises what a save of the sequence would: no such sequence, a shift or copy not applied, a copy in flight."""
        self._check_savable(seq_id)
        self.transfers.check_none(seq_id, "saved by another transfer")

    def _check_savable(self, seq_id: int) -> None:
        self._memory()
        self._check_seq(seq_id)
        self._check_applied(seq_id, "saved")

    def _check_no_copy(self, seq_id: int) -> None:
        """A copy between streams that waits for the next decode must not meet rows that were restored meanwhile."""
        self.transfers.check_none(self._check_seq(seq_id), "restored over")
        if seq_id in self._copying or seq_id in self._copying.values():
            self._check_applied(next(d for d, s in self._copying.items() if seq_id in (d, s)), "restored over")

    def check_receiving(self, seq_id: int) -> None:
        """Raises what speaks against a restore of any state: no such sequence, a copy in flight."""
        self._memory()
        self._check_no_copy(seq_id)

    def check_restorable(self, source: npt.NDArray[np.uint8], seq_id: int, flags: StateFlags = StateFlags.NONE) -> None:
        """Raises what speaks against a restore before any cell is touched: no such sequence, no state in the bytes."""
        self.check_receiving(seq_id)
        if len(source) < SEQUENCE_HEADER_BYTES or source[:4].tobytes() != MAGIC_BYTES:
            raise StateError("this is not a sequence state: it does not begin with the magic number")
        positions = None if self._is_recurrent else first_positions(source)
        if positions is not None and ((positions < 0) | (positions > LAST_POSITION)).any():
            # llama.cpp would take it: a cell that nothing finds or frees any more
            wrong = positions.min() if positions.min() < 0 else positions.max()
            raise StateError(f"the state is damaged: it has a cell at position {wrong}")
        if flags & StateFlags.ON_DEVICE:
            saved_from = int(source[4:8].view(np.int32)[0])
            if self._on_device.get(saved_from) != source.tobytes():
                raise StateError(
                    f"the rows of this state are no longer on the device: sequence {saved_from} was saved again with "
                    "ON_DEVICE, or by another context"
                )

    def _empty_after_failure(self, seq_id: int) -> None:
        # llama.cpp keeps the cells whose rows it could not read in some of its memories
        self.seq_remove(seq_id)

    def needs_more_cells(self, source: npt.NDArray[np.uint8]) -> bool:
        """Whether a restore that has just failed failed for want of cells: the sequence is empty now."""
        positions = None if self._is_recurrent else first_positions(source)
        n_free = self.n_ctx_seq - (self.n_cells_used() if self.kv_unified else 0)
        return positions is not None and len(positions) > n_free


def _as_uint8(data: Buffer, *, writable: bool) -> npt.NDArray[np.uint8]:
    """A view of a contiguous buffer, in place. Raises InvalidArgumentError where it cannot be written."""
    view = byte_view(data)
    if writable and view.readonly:
        raise InvalidArgumentError("the buffer is read-only: pass a bytearray or a writable array")
    return np.frombuffer(view, np.uint8)
