"""Window caches, recurrent states and no memory at all, on tiny models with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pyggml import (
    Batch,
    Context,
    ContextParams,
    InvalidBatchError,
    Model,
    StateError,
    StateFlags,
    UnsupportedError,
    rows_by_position,
)
from tests.pyggml.tiny_models import N_VOCAB, WINDOW, write_encoder_model, write_recurrent_model, write_window_model

Open = Callable[..., Context]

N_TOKENS = 20


@pytest.fixture
def open_tiny(tmp_path: Path) -> Iterator[Open]:
    """A context of a model that is written on the spot; both are closed in the end."""
    made: list[Context] = []

    def open_one(write: Callable[[Path], Path], **params: object) -> Context:
        defaults: dict[str, object] = {"n_ctx": 256, "n_seq_max": 4, "n_threads": 1, "n_threads_batch": 1}
        model = Model(write(tmp_path / "tiny.gguf"))
        made.append(Context(model, ContextParams(**(defaults | params))))  # type: ignore[arg-type]
        return made[-1]

    yield open_one
    for context in made:
        context.close()
        context.model.close()


def decode(context: Context, seq_id: int = 0, n: int = N_TOKENS, first: int = 0) -> None:
    context.decode(Batch.from_arrays(np.arange(first, first + n) % N_VOCAB, range(first, first + n), seq_id))


@pytest.mark.parametrize("write", [write_window_model, write_recurrent_model])
def test_a_restored_sequence_goes_on_with_the_same_logits(open_tiny: Open, write: Callable[[Path], Path]) -> None:
    context = open_tiny(write, swa_full=False)
    decode(context)
    decode(context, seq_id=1)
    state = context.save_state(0)
    context.seq_remove(0)
    context.restore_state(state, 2)
    decode(context, seq_id=2, n=1, first=N_TOKENS)
    restored = context.logits().copy()
    decode(context, seq_id=1, n=1, first=N_TOKENS)
    assert np.allclose(restored, context.logits(), atol=5e-3)  # half precision sums in another order of cells


def test_a_window_state_holds_every_position_of_one_layer_and_the_window_of_the_other(open_tiny: Open) -> None:
    context = open_tiny(write_window_model, swa_full=False)
    assert context.model.n_swa == WINDOW
    decode(context)
    state = context.save_state(0)
    whole, windowed = (sorted(layer) for layer in rows_by_position(state))
    assert whole == list(range(N_TOKENS))
    assert windowed == list(range(N_TOKENS - WINDOW, N_TOKENS))
    context.restore_state(state, 3)
    assert rows_by_position(context.save_state(3)) == rows_by_position(state)


def test_a_partial_state_of_a_window_model_is_the_window_alone(open_tiny: Open) -> None:
    context = open_tiny(write_window_model, swa_full=False)
    decode(context)
    partial = context.save_state(0, flags=StateFlags.PARTIAL_ONLY)
    (windowed,) = rows_by_position(partial)
    assert sorted(windowed) == list(range(N_TOKENS - WINDOW, N_TOKENS))
    context.restore_state(partial, 0, StateFlags.PARTIAL_ONLY)
    assert context.seq_pos_max(0) == N_TOKENS - 1
    decode(context, n=1, first=N_TOKENS)


def test_a_recurrent_state_has_no_rows_by_position(open_tiny: Open) -> None:
    context = open_tiny(write_recurrent_model)
    decode(context)
    with pytest.raises(StateError, match="no positions"):
        rows_by_position(context.save_state(0))


def test_a_recurrent_sequence_uses_one_cell(open_tiny: Open) -> None:
    context = open_tiny(write_recurrent_model)
    decode(context)
    decode(context, seq_id=3)
    assert context.n_cells_used() == 2
    assert context.seq_n_cells(3) == 1


@pytest.mark.parametrize(("p0", "p1"), [(5, None), (5, 10), (0, 10)])
def test_a_part_of_a_recurrent_state_cannot_be_removed(open_tiny: Open, p0: int, p1: int | None) -> None:
    context = open_tiny(write_recurrent_model)
    decode(context)
    with pytest.raises(UnsupportedError, match="remove it whole"):
        context.seq_remove(0, p0, p1)
    assert context.seq_pos_max(0) == N_TOKENS - 1
    context.seq_remove(0)
    assert context.seq_pos_max(0) is None


def test_a_recurrent_state_replaces_the_only_sequence(open_tiny: Open) -> None:
    context = open_tiny(write_recurrent_model, n_seq_max=1)
    decode(context)
    state = context.save_state(0)
    decode(context, n=5, first=N_TOKENS)
    context.restore_state(state, 0)
    assert context.seq_pos_max(0) == N_TOKENS - 1


def test_an_encoder_pools_and_has_nothing_to_save(open_tiny: Open) -> None:
    context = open_tiny(write_encoder_model, n_ctx=64, embeddings=True)
    assert not context.has_memory
    context.encode(Batch.from_arrays(np.arange(9), range(9)))
    assert context.embeddings(0).shape == (32,)
    for use in (
        context.n_cells_used,
        context.clear,
        lambda: context.seq_remove(0),
        lambda: context.seq_pos_max(0),
        lambda: context.save_state(0),
        lambda: context.restore_state(b"", 0),
        lambda: context.load_state_file("nowhere", 0),
    ):
        with pytest.raises(UnsupportedError, match="no memory"):
            use()
    assert not context.can_shift


def test_an_encoder_takes_no_more_than_its_micro_batch(open_tiny: Open) -> None:
    """The tree: GGML_ASSERT(cparams.n_ubatch >= n_tokens)."""
    context = open_tiny(write_encoder_model, n_ctx=64, n_ubatch=8, embeddings=True)
    for run in (context.encode, context.decode):
        with pytest.raises(InvalidBatchError, match="takes 8 at once"):
            run(Batch.from_arrays(np.arange(9), range(9)))
    context.encode(Batch.from_arrays(np.arange(8), range(8)))


def test_a_position_beyond_the_table_of_positions_is_refused(open_tiny: Open) -> None:
    """The tree: ggml_get_rows asserts on the row."""
    context = open_tiny(write_encoder_model, n_ctx=64, embeddings=True)
    with pytest.raises(InvalidBatchError, match=r"position 64 at index 1 is not in \[0, 64\)"):
        context.encode(Batch.from_arrays([1, 2], [63, 64]))


def test_a_model_without_a_vocabulary_says_so(open_tiny: Open) -> None:
    vocab = open_tiny(write_window_model).model.vocab
    assert vocab.n_tokens == N_VOCAB
    for use in (lambda: vocab.tokenize("a"), lambda: vocab.detokenize([1]), lambda: vocab.piece(1)):
        with pytest.raises(UnsupportedError, match="no vocabulary"):
            use()
    assert vocab.bos is None
