"""Decoding batches and reading what comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from pyggml import AbortedError, Batch, Context, InvalidArgumentError, InvalidBatchError, NoRoomError, UnsupportedError
from pyggml.params import Pooling
from tests.pyggml.conftest import MakeContext, Tokens


def test_the_logits_have_one_number_per_token(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story))))
    assert context.logits().shape == (49152,)
    assert np.isfinite(context.logits()).all()


def test_any_requested_output_can_be_read(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story)), output=[i in (3, 7) for i in range(len(story))]))
    assert np.array_equal(context.logits(3), context.logits(-2))
    assert np.array_equal(context.logits(7), context.logits(-1))
    assert not np.array_equal(context.logits(3), context.logits(7))


@pytest.mark.parametrize("index", [0, 5, 100, -3])
def test_an_output_that_was_not_requested_is_refused(context: Context, story: Tokens, index: int) -> None:
    context.decode(Batch.from_arrays(story, range(len(story)), output=[i in (3, 7) for i in range(len(story))]))
    with pytest.raises(InvalidArgumentError, match="no output at index"):
        context.logits(index)


def test_there_are_no_logits_before_the_first_decode(context: Context) -> None:
    with pytest.raises(InvalidArgumentError):
        context.logits()


def test_logits_are_a_view_that_the_next_decode_overwrites(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story[:5], range(5)))
    first = context.logits()
    before = first.copy()
    context.decode(Batch.from_arrays(story[5:6], [5]))
    assert np.shares_memory(first, context.logits())
    assert not np.array_equal(first, before)
    assert not first.flags.writeable


def test_a_decode_that_would_move_the_outputs_waits_for_their_views(make_context: MakeContext, story: Tokens) -> None:
    context = make_context(n_seq_max=1)
    context.decode(Batch.from_arrays(story[:1], [0]))
    view = context.logits()
    many = Batch.from_arrays(story[1:4], [1, 2, 3], output=[True] * 3)
    with pytest.raises(BufferError, match="still alive"):
        context.decode(many)
    assert context.seq_pos_max(0) == 0
    del view
    context.decode(many)
    assert context.seq_pos_max(0) == 3


def test_a_batch_can_carry_several_sequences(context: Context, story: Tokens, recipe: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story)), 0))
    alone = context.logits().argmax()
    context.clear()
    batch = Batch(64)
    for pos, token in enumerate(recipe):
        batch.add(int(token), pos, 1)
    for pos, token in enumerate(story):
        batch.add(int(token), pos, 0, output=pos == len(story) - 1)
    context.decode(batch)
    assert context.logits(len(batch) - 1).argmax() == alone
    assert context.n_cells_used() == len(story) + len(recipe)


def test_a_token_can_be_in_several_sequences(context: Context, story: Tokens) -> None:
    batch = Batch(4, n_seq_per_token=3)
    for pos in range(4):
        batch.add(int(story[pos]), pos, (0, 1, 3), output=pos == 3)
    context.decode(batch)
    assert context.n_cells_used() == 4
    assert [context.seq_n_cells(s) for s in range(4)] == [4, 4, 0, 4]
    assert context.seq_n_cells(0, owned_only=True) == 0


def test_no_room_says_how_full_the_pool_is_and_changes_nothing(
    make_context: MakeContext, story: Tokens, decode: Callable[[Context, Tokens, int], None]
) -> None:
    context = make_context(n_ctx=256)
    tokens = np.resize(story, 250)
    decode(context, tokens, 0)
    with pytest.raises(NoRoomError, match="250 of 256 cells"):
        decode(context, tokens[:10], 1)
    assert context.n_cells_used() == 250
    assert context.seq_pos_max(1) is None
    decode(context, tokens[:6], 1)


def test_positions_that_do_not_continue_the_sequence_are_refused(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story[:4], range(4)))
    with pytest.raises(InvalidBatchError, match="Y = X \\+ 1"):
        context.decode(Batch.from_arrays(story[:2], [7, 8]))
    assert context.seq_pos_max(0) == 3


def test_a_refused_batch_leaves_no_outputs_to_read(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story[:4], range(4)))
    with pytest.raises(InvalidBatchError):
        context.decode(Batch.from_arrays(story[:2], [7, 8]))
    with pytest.raises(InvalidArgumentError, match="no output"):
        context.logits()


def test_an_abort_before_a_decode_ends_it_and_the_next_one_runs(context: Context, story: Tokens) -> None:
    context.request_abort()
    with pytest.raises(AbortedError):
        context.decode(Batch.from_arrays(story, range(len(story))))
    context.seq_remove(0)
    context.decode(Batch.from_arrays(story, range(len(story))))
    assert context.seq_pos_max(0) == len(story) - 1


def test_an_abort_may_come_from_another_thread(context: Context, story: Tokens) -> None:
    thread = threading.Thread(target=context.request_abort)
    thread.start()
    thread.join()
    with pytest.raises(AbortedError):
        context.decode(Batch.from_arrays(story, range(len(story))))


def test_embeddings_are_pooled_per_sequence(make_context: MakeContext, story: Tokens, recipe: Tokens) -> None:
    context = make_context(embeddings=True, pooling=Pooling.MEAN)
    context.decode(Batch.from_arrays(story, range(len(story)), 0, output=[True] * len(story)))
    first = context.embeddings(0)
    context.decode(Batch.from_arrays(recipe, range(len(recipe)), 1, output=[True] * len(recipe)))
    assert first.shape == context.embeddings(1).shape == (576,)
    assert not np.array_equal(first, context.embeddings(1))


def test_embeddings_of_a_context_that_computes_none_are_refused(context: Context, story: Tokens) -> None:
    context.decode(Batch.from_arrays(story, range(len(story))))
    with pytest.raises(UnsupportedError, match="embeddings=True"):
        context.embeddings(0)
    with pytest.raises(UnsupportedError, match="embeddings=True"):
        context.embeddings_at()


def test_a_decoder_cannot_encode(context: Context, story: Tokens) -> None:
    with pytest.raises(UnsupportedError, match="no encoder"):
        context.encode(Batch.from_arrays(story, range(len(story))))


def test_the_arrays_of_a_batch_are_read_in_place(context: Context, story: Tokens) -> None:
    batch = Batch.from_arrays(story, range(len(story)))
    context.decode(batch)
    expected = context.logits().copy()
    batch.token[0] = 1
    context.clear()
    context.decode(batch)
    assert not np.array_equal(context.logits(), expected)
