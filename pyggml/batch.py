"""The tokens of one decode, in numpy arrays that llama.cpp reads in place (no copies).

A Batch belongs to no thread: fill it on any, but not while a decode reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from pyggml.errors import InvalidArgumentError
from pyggml.ffi import CData, ffi


class Batch:
    """Room for `capacity` tokens, each in up to `n_seq_per_token` sequences.

    The arrays `token`, `pos` (int32[capacity]), `seq_id` (int32[capacity, n_seq_per_token]), `n_seq_id`
    (int32[capacity]) and `output` (int8[capacity], 1 where logits are wanted) may be written directly; `len` tokens
    count.
    """

    def __init__(self, capacity: int, n_seq_per_token: int = 1):
        if capacity < 1 or n_seq_per_token < 1:
            what = f"capacity is {capacity} and n_seq_per_token {n_seq_per_token}"
            raise InvalidArgumentError(f"{what}: both must be at least 1")
        self._token: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._pos: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._seq_id: npt.NDArray[np.int32] = np.zeros((capacity, n_seq_per_token), np.int32)
        self._n_seq_id: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._output: npt.NDArray[np.int8] = np.zeros(capacity, np.int8)
        self._n_tokens = 0
        self._struct = self._bind()

    @classmethod
    def from_arrays(
        cls,
        token: Sequence[int] | npt.NDArray[np.integer],
        pos: Sequence[int] | npt.NDArray[np.integer],
        seq_id: int | Sequence[int] | npt.NDArray[np.integer] = 0,
        output: Sequence[bool] | npt.NDArray[np.generic] | None = None,
    ) -> Self:
        """A full batch from arrays of one length n. `seq_id`: one for all, one per token, or [n, k] for k per token.

        `output` None wants the last token's logits only.
        """
        n = len(token)
        if n < 1 or len(pos) != n or (output is not None and len(output) != n):
            raise InvalidArgumentError(f"token has {n} entries: token, pos and output need the same length, at least 1")
        ids = np.asarray(seq_id)
        ids = np.broadcast_to(ids if ids.ndim == 2 else ids.reshape(-1, 1), (n, ids.shape[1] if ids.ndim == 2 else 1))
        batch = cls(n, ids.shape[1])
        batch.token[:] = token
        batch.pos[:] = pos
        batch.seq_id[:] = ids
        batch.n_seq_id[:] = ids.shape[1]
        if output is None:
            batch.output[-1] = 1
        else:
            batch.output[:] = np.asarray(output, bool)
        batch._n_tokens = n
        return batch

    def add(self, token: int, pos: int, seq_ids: int | Iterable[int] = 0, output: bool = False) -> int:
        """Appends one token and returns its index. Raises InvalidArgumentError when the batch is full."""
        index = self._n_tokens
        ids = [seq_ids] if isinstance(seq_ids, int) else list(seq_ids)
        if index == self.capacity:
            raise InvalidArgumentError(f"the batch is full: it has room for {self.capacity} tokens")
        if not 1 <= len(ids) <= self.seq_id.shape[1]:
            raise InvalidArgumentError(
                f"the token is in {len(ids)} sequences: this batch allows 1 to {self.seq_id.shape[1]} (n_seq_per_token)"
            )
        try:
            self.token[index], self.pos[index] = token, pos
            self.seq_id[index, : len(ids)] = ids
        except OverflowError as error:
            raise InvalidArgumentError(f"token, position or sequence id is out of range: {error}") from error
        self.n_seq_id[index] = len(ids)
        self.output[index] = output
        self._n_tokens = index + 1
        return index

    def clear(self) -> None:
        self._n_tokens = 0

    # Properties, because llama.cpp reads these very arrays: they can be written, not replaced.
    @property
    def token(self) -> npt.NDArray[np.int32]:
        return self._token

    @property
    def pos(self) -> npt.NDArray[np.int32]:
        return self._pos

    @property
    def seq_id(self) -> npt.NDArray[np.int32]:
        return self._seq_id

    @property
    def n_seq_id(self) -> npt.NDArray[np.int32]:
        return self._n_seq_id

    @property
    def output(self) -> npt.NDArray[np.int8]:
        return self._output

    @property
    def capacity(self) -> int:
        return len(self.token)

    def __len__(self) -> int:
        return self._n_tokens

    def native(self) -> CData:
        """A `llama_batch *` into the arrays, valid as long as this object."""
        self._struct.n_tokens = self._n_tokens
        return self._struct

    def _bind(self) -> CData:
        row_bytes = self.seq_id.strides[0]
        self._rows = self.seq_id.ctypes.data + row_bytes * np.arange(self.capacity, dtype=np.uintp)
        self._keep = [
            ffi.from_buffer(kind, array, require_writable=True)
            for kind, array in (
                ("llama_token[]", self.token),
                ("llama_pos[]", self.pos),
                ("int32_t[]", self.n_seq_id),
                ("int8_t[]", self.output),
            )
        ]
        struct = ffi.new("llama_batch *")
        struct.token, struct.pos, struct.n_seq_id, struct.logits = self._keep
        struct.seq_id = ffi.cast("llama_seq_id **", self._rows.ctypes.data)
        struct.embd = ffi.NULL
        return struct
