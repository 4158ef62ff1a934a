"""Saving a sequence into a buffer and restoring it: the same rows, and the same conversation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pyggml import (
    Batch,
    CacheType,
    Context,
    FlashAttention,
    InvalidArgumentError,
    NoRoomError,
    StateError,
    StateFlags,
    UnappliedUpdateError,
    rows_by_position,
)
from tests.pyggml.conftest import MakeContext, Tokens

Decode = Callable[[Context, Tokens, int], None]
Continue = Callable[[Context, int, int, int], list[int]]

KINDS: dict[str, dict[str, object]] = {
    "flash attention": {"flash_attention": FlashAttention.ON},
    "transposed V": {"flash_attention": FlashAttention.OFF},
    "quantized cache": {
        "flash_attention": FlashAttention.ON,
        "cache_type_k": CacheType.Q8_0,
        "cache_type_v": CacheType.Q8_0,
    },
    "f32 cache": {"cache_type_k": CacheType.F32, "cache_type_v": CacheType.F32},
    "one stream per sequence": {"kv_unified": False, "n_ctx": 1024},
}


@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS.keys())
def test_rows_at_each_position_are_equal_after_a_restore_into_another_sequence(
    make_context: MakeContext, params: dict[str, object], story: Tokens, recipe: Tokens, decode: Decode
) -> None:
    context = make_context(**params)
    for first in range(0, 15, 5):  # interleaved, so that the sequence is in several pieces
        decode(context, story[first : first + 5], 0)
        decode(context, recipe[first : first + 5], 1)
    before = context.save_state(0)
    neighbour = rows_by_position(context.save_state(1))
    context.seq_remove(0)
    decode(context, recipe[:3], 2)
    assert context.restore_state(before, 3) == len(before)
    after = context.save_state(3)
    assert rows_by_position(after) == rows_by_position(before)
    assert sorted(rows_by_position(after)[0]) == list(range(15))
    assert rows_by_position(context.save_state(1)) == neighbour
    assert after.tobytes() != before.tobytes()  # the sequence id is in the bytes


def test_a_restored_conversation_goes_on_with_the_very_same_tokens(
    context: Context, story: Tokens, recipe: Tokens, decode: Decode, continue_greedily: Continue
) -> None:
    decode(context, story[:-1], 0)
    expected = continue_greedily(context, 0, int(story[-1]), 24)
    context.clear()
    decode(context, story[:-1], 0)
    tokens = continue_greedily(context, 0, int(story[-1]), 10)
    state = context.save_state(0)
    context.seq_remove(0)
    decode(context, recipe, 1)
    context.restore_state(state, 2)
    assert tokens + continue_greedily(context, 2, tokens[-1], 14) == expected


def test_a_state_moves_to_another_context(
    make_context: MakeContext, story: Tokens, decode: Decode, continue_greedily: Continue
) -> None:
    first, second = make_context(), make_context(n_ctx=512, n_seq_max=2)
    decode(first, story[:-1], 3)
    second.restore_state(first.save_state(3), 1)
    assert continue_greedily(second, 1, int(story[-1]), 8) == continue_greedily(first, 3, int(story[-1]), 8)


def test_a_state_is_written_into_the_buffer_of_the_caller(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    n_bytes = context.state_size(0)
    for buffer in (bytearray(n_bytes + 100), np.zeros(n_bytes + 100, np.uint8), memoryview(bytearray(n_bytes))):
        state = context.save_state(0, out=buffer)
        assert len(state) == n_bytes
        assert np.shares_memory(state, np.frombuffer(buffer, np.uint8))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.asarray])
def test_a_state_is_read_from_any_buffer(
    context: Context, story: Tokens, decode: Decode, kind: Callable[[object], bytes]
) -> None:
    decode(context, story, 0)
    state = context.save_state(0)
    context.restore_state(kind(state), 1)
    assert rows_by_position(context.save_state(1)) == rows_by_position(state)


def test_restoring_replaces_what_the_sequence_held(
    context: Context, story: Tokens, recipe: Tokens, decode: Decode
) -> None:
    decode(context, story, 0)
    decode(context, recipe, 1)
    context.restore_state(context.save_state(1), 0)
    assert context.seq_n_cells(0) == len(recipe)


def test_restoring_an_empty_state_empties_the_sequence(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.restore_state(context.save_state(1), 0)
    assert context.seq_pos_max(0) is None


def test_a_state_without_room_is_refused_and_fits_later(
    make_context: MakeContext, story: Tokens, decode: Decode
) -> None:
    context = make_context(n_ctx=256)
    long = np.resize(story, 200)
    decode(context, long, 0)
    state = context.save_state(0)
    with pytest.raises(NoRoomError, match="remove a sequence"):
        context.restore_state(state, 1)
    assert context.seq_pos_max(1) is None
    assert context.n_cells_used() == 200
    context.seq_remove(0)
    context.restore_state(state, 1)
    assert context.seq_pos_max(1) == 199


def test_a_parked_copy_needs_cells_of_its_own(make_context: MakeContext, story: Tokens, decode: Decode) -> None:
    context = make_context(n_ctx=256)
    decode(context, np.resize(story, 200), 0)
    context.seq_copy(0, 1)
    state = context.save_state(1)
    context.seq_remove(1)
    with pytest.raises(NoRoomError):
        context.restore_state(state, 1)


def test_a_state_of_another_cache_type_is_refused(make_context: MakeContext, story: Tokens, decode: Decode) -> None:
    first, second = make_context(), make_context(cache_type_k=CacheType.F32)
    decode(first, story, 0)
    with pytest.raises(StateError, match="mismatched key type"):
        second.restore_state(first.save_state(0), 0)
    assert second.n_cells_used() == 0


def test_a_shifted_sequence_is_saved_only_after_the_next_decode(
    context: Context, story: Tokens, decode: Decode
) -> None:
    decode(context, story, 0)
    context.seq_remove(0, 4, 10)
    context.seq_add(0, 10, None, -6)
    with pytest.raises(UnappliedUpdateError):
        context.save_state(0)
    decode(context, story[-1:], 0)
    context.restore_state(context.save_state(0), 1)
    batch = Batch(2)
    end = context.seq_pos_max(0)
    assert end is not None
    for seq_id in (0, 1):
        batch.add(int(story[3]), end + 1, seq_id, output=True)
    context.decode(batch)
    assert np.allclose(context.logits(0), context.logits(1), atol=1e-3)


def test_a_shift_of_shared_cells_bars_every_sequence_that_shares_them(
    context: Context, story: Tokens, recipe: Tokens, decode: Decode
) -> None:
    decode(context, story, 0)
    decode(context, recipe, 2)
    context.seq_copy(0, 1)
    context.seq_add(0, 0, None, 2)
    context.seq_remove(0)
    with pytest.raises(UnappliedUpdateError):
        context.save_state(1)
    assert len(context.save_state(2)) > 0


def test_a_refused_batch_does_not_apply_a_shift(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.seq_add(0, 0, None, 2)
    with pytest.raises(InvalidArgumentError):
        context.decode(Batch.from_arrays([1], [0], 0))
    with pytest.raises(UnappliedUpdateError):
        context.save_state(0)


def test_a_removed_sequence_has_nothing_left_to_apply(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    context.seq_add(0, 0, None, 2)
    context.seq_remove(0)
    decode(context, story, 0)
    assert len(context.save_state(0)) > 0


def test_the_plain_cache_saves_everything_as_partial_too(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    partial = context.save_state(0, flags=StateFlags.PARTIAL_ONLY)
    assert partial.tobytes() == context.save_state(0).tobytes()


def test_rows_can_stay_on_the_device(context: Context, story: Tokens, decode: Decode) -> None:
    decode(context, story, 0)
    names = context.save_state(0, flags=StateFlags.ON_DEVICE)
    whole = context.save_state(0)
    assert len(names) < len(whole) / 100
    context.seq_remove(0)
    context.restore_state(names, 1, StateFlags.ON_DEVICE)
    assert rows_by_position(context.save_state(1)) == rows_by_position(whole)
