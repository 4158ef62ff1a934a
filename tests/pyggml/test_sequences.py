"""Removing, copying, keeping and shifting sequences, and what they occupy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyggml import Batch, Context
from tests.pyggml.conftest import MakeContext, Tokens

Decode = Callable[[Context, Tokens, int], None]


def test_an_empty_context_has_no_positions_and_no_cells(context: Context) -> None:
    assert context.seq_pos_min(0) is None
    assert context.seq_pos_max(0) is None
    assert context.n_cells_used() == 0


def test_a_decode_uses_a_cell_per_token(context: Context, story: Tokens, recipe: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    decode(context, recipe, 2)
    assert context.n_cells_used() == len(story) + len(recipe)
    assert context.seq_n_cells(0) == len(story)
    assert context.seq_n_cells(2, owned_only=True) == len(recipe)
    assert (context.seq_pos_min(2), context.seq_pos_max(2)) == (0, len(recipe) - 1)


def test_removing_a_tail_lets_the_sequence_go_on_from_there(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    expected = context.logits().copy()
    context.seq_remove(0, 5)
    assert context.seq_pos_max(0) == 4
    decode(context, story[5:], 0)
    assert np.allclose(context.logits(), expected, atol=1e-3)


def test_removing_one_sequence_leaves_the_others(
    context: Context, story: Tokens, recipe: Tokens, decode: Decode
) -> None:
    decode(context, story, 0)
    decode(context, recipe, 1)
    context.seq_remove(0)
    assert context.seq_pos_max(0) is None
    assert context.n_cells_used() == context.seq_n_cells(1) == len(recipe)


def test_a_copy_shares_the_cells_and_survives_its_source(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.seq_copy(0, 1)
    assert context.n_cells_used() == len(story)
    assert context.seq_n_cells(0, owned_only=True) == 0
    context.seq_remove(0)
    assert context.seq_n_cells(1, owned_only=True) == len(story)


def test_a_copy_continues_as_its_source_would(
    context: Context, story: Tokens, decode: Decode, continue_greedily: Callable[..., list[int]]
) -> None:
    decode(context, story[:-1], 0)
    context.seq_copy(0, 3)
    assert continue_greedily(context, 3, int(story[-1]), 8) == continue_greedily(context, 0, int(story[-1]), 8)


def test_a_part_can_be_copied_in_a_unified_pool(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.seq_copy(0, 1, 0, 5)
    context.seq_copy(0, 1, 5, 8)
    assert context.seq_n_cells(1) == 8


def test_without_a_unified_pool_a_copy_is_made_by_the_next_decode(
    make_context: MakeContext, story: Tokens, decode: Decode
) -> None:
    context = make_context(n_ctx=1024, kv_unified=False)
    decode(context, story[:-1], 0)
    context.seq_copy(0, 1)
    batch = Batch(2)
    for seq_id in (0, 1):
        batch.add(int(story[-1]), len(story) - 1, seq_id, output=True)
    context.decode(batch)
    assert np.allclose(context.logits(0), context.logits(1), atol=1e-3)


@pytest.mark.parametrize("kv_unified", [True, False])
def test_keeping_one_sequence_removes_all_others(
    make_context: MakeContext, story: Tokens, recipe: Tokens, decode: Decode, kv_unified: bool
) -> None:
    context = make_context(n_ctx=1024, kv_unified=kv_unified)
    for seq_id, tokens in enumerate((story, recipe, story)):
        decode(context, tokens, seq_id)
    context.seq_keep(1)
    assert [context.seq_pos_max(s) for s in range(4)] == [None, len(recipe) - 1, None, None]


def test_a_shift_closes_the_gap_that_a_removal_left(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.seq_remove(0, 4, 10)
    context.seq_add(0, 10, None, -6)
    assert context.seq_pos_max(0) == len(story) - 7
    decode(context, story[-1:], 0)
    assert np.isfinite(context.logits()).all()


def test_a_division_halves_the_positions(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story[:9], 0)
    context.seq_divide(0, None, None, 2)
    assert (context.seq_pos_min(0), context.seq_pos_max(0)) == (0, 4)


def test_clearing_empties_every_sequence(context: Context, story: Tokens, recipe: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    decode(context, recipe, 1)
    context.clear()
    assert context.n_cells_used() == 0
    assert context.seq_pos_max(1) is None
