"""What llama.cpp would assert about a batch, checked before it sees it. Pure: looks, changes nothing, any thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyggml.batch import Batch
from pyggml.errors import InvalidBatchError


@dataclass(frozen=True)
class BatchLimits:
    """What a context allows in one batch; `n_tokens_max` as the context computes it for decode or encode."""

    n_tokens_max: int
    n_outputs_max: int
    n_vocab: int
    n_positions: int | None  # None: no end
    n_seq_max: int
    one_seq_per_token: bool
    outputs_all: bool


def check_batch(batch: Batch, limits: BatchLimits) -> None:
    """Raises InvalidBatchError, naming the first token that is wrong and the limit."""
    n = len(batch)
    if n == 0:
        raise InvalidBatchError("the batch is empty: add a token first")
    if n > limits.n_tokens_max:
        raise InvalidBatchError(
            f"the batch has {n} tokens, this context takes {limits.n_tokens_max} at once (n_batch; n_ubatch where the "
            "model is an encoder or not causal): decode it in parts"
        )
    n_outputs = n if limits.outputs_all else int(np.count_nonzero(batch.output[:n]))
    if n_outputs > limits.n_outputs_max:
        raise InvalidBatchError(
            f"the batch wants {n_outputs} outputs, this context has room for {limits.n_outputs_max} (n_outputs_max)"
        )
    _check_each("token", batch.token[:n], limits.n_vocab)
    _check_each("position", batch.pos[:n], limits.n_positions or 2**31 - 1)
    _check_sequences(batch, n, limits)


def _check_each(what: str, values: npt.NDArray[np.int32], end: int) -> None:
    wrong = np.flatnonzero((values < 0) | (values >= end))
    if wrong.size:
        raise InvalidBatchError(f"{what} {values[wrong[0]]} at index {wrong[0]} is not in [0, {end})")


def _check_sequences(batch: Batch, n: int, limits: BatchLimits) -> None:
    counts, ids = batch.n_seq_id[:n], batch.seq_id[:n]
    most = 1 if limits.one_seq_per_token else ids.shape[1]
    wrong = np.flatnonzero((counts < 1) | (counts > most))
    if wrong.size:
        raise InvalidBatchError(
            f"the token at index {wrong[0]} is in {counts[wrong[0]]} sequences, allowed is 1 to {most} "
            "(several need kv_unified and a batch with n_seq_per_token)"
        )
    used = np.arange(ids.shape[1])[None, :] < counts[:, None]
    wrong_id = used & ((ids < 0) | (ids >= limits.n_seq_max))
    if wrong_id.any():
        index, column = np.argwhere(wrong_id)[0]
        raise InvalidBatchError(
            f"sequence {ids[index, column]} at index {index} does not exist: this context has sequences 0 to "
            f"{limits.n_seq_max - 1} (n_seq_max)"
        )
