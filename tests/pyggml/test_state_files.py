"""Sequence files: llama.cpp's own format, whole or not at all, and the same bytes as a state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pyggml import (
    Context,
    InvalidArgumentError,
    NoRoomError,
    StateError,
    UnappliedUpdateError,
    file_to_state,
    rows_by_position,
    state_to_file,
)
from tests.pyggml.conftest import MakeContext, Tokens

Decode = Callable[[Context, Tokens, int], None]


def test_a_sequence_and_its_tokens_come_back_from_a_file(
    context: Context, story: Tokens, decode: Decode, tmp_path: Path
) -> None:
    decode(context, story, 0)
    n_bytes = context.save_state_file(tmp_path / "chat.bin", 0, story)
    assert n_bytes == (tmp_path / "chat.bin").stat().st_size
    assert context.load_state_file(tmp_path / "chat.bin", 2).tolist() == story.tolist()
    assert rows_by_position(context.save_state(2)) == rows_by_position(context.save_state(0))


def test_a_file_may_carry_no_tokens(context: Context, story: Tokens, decode: Decode, tmp_path: Path) -> None:
    decode(context, story, 0)
    context.save_state_file(tmp_path / "chat.bin", 0)
    assert len(context.load_state_file(tmp_path / "chat.bin", 1)) == 0
    assert context.seq_pos_max(1) == len(story) - 1


def test_a_saved_state_becomes_the_file_that_llama_cpp_writes(
    context: Context, story: Tokens, decode: Decode, tmp_path: Path
) -> None:
    decode(context, story, 1)
    context.save_state_file(tmp_path / "chat.bin", 1, story)
    assert state_to_file(context.save_state(1), story) == (tmp_path / "chat.bin").read_bytes()


def test_a_file_becomes_a_state(context: Context, story: Tokens, decode: Decode, tmp_path: Path) -> None:
    decode(context, story, 0)
    context.save_state_file(tmp_path / "chat.bin", 0, story)
    file = (tmp_path / "chat.bin").read_bytes()
    tokens, state = file_to_state(file)
    assert tokens.tolist() == story.tolist()
    assert state.tobytes() == context.save_state(0).tobytes()
    assert file == (tmp_path / "chat.bin").read_bytes()
    writable = np.fromfile(tmp_path / "chat.bin", np.uint8)
    assert np.shares_memory(file_to_state(writable)[1], writable)


def test_too_many_tokens_are_refused_before_anything_changes(
    context: Context, story: Tokens, decode: Decode, tmp_path: Path
) -> None:
    decode(context, story, 0)
    context.save_state_file(tmp_path / "chat.bin", 0, story)
    with pytest.raises(InvalidArgumentError, match=f"has {len(story)} tokens"):
        context.load_state_file(tmp_path / "chat.bin", 0, max_tokens=5)
    assert context.seq_n_cells(0) == len(story)


def test_a_file_without_room_is_refused(
    make_context: MakeContext, story: Tokens, decode: Decode, tmp_path: Path
) -> None:
    context = make_context(n_ctx=256)
    decode(context, np.resize(story, 200), 0)
    context.save_state_file(tmp_path / "chat.bin", 0)
    with pytest.raises(NoRoomError, match=r"chat\.bin"):
        context.load_state_file(tmp_path / "chat.bin", 1)


def test_a_save_that_fails_leaves_the_earlier_file(
    context: Context, story: Tokens, decode: Decode, tmp_path: Path
) -> None:
    decode(context, story, 0)
    path = tmp_path / "chat.bin"
    context.save_state_file(path, 0, story)
    before = path.read_bytes()
    context.seq_add(0, 0, None, 1)
    with pytest.raises(UnappliedUpdateError):
        context.save_state_file(path, 0, story)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_named(context: Context, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"nowhere.*No such file"):
        context.save_state_file(tmp_path / "nowhere" / "chat.bin", 0)


def test_tokens_outside_the_vocabulary_are_not_written(context: Context, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="not in the vocabulary"):
        context.save_state_file(tmp_path / "chat.bin", 0, [-5])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("packed", "match"),
    [
        ([-1], "not known"),
        ([-1, 2, 1, 7, 0], "not known"),
        ([-1, 1, 9, 7, 0], "not known"),
        ([-1, 1, -3, 7, 0], "not known"),
        ([-1, 1, 2, 7, -1, 1, 1, 4, 99], "1 images or sounds"),
        ([-1, 1, 2, 7, -1, 1, 1], "damaged where its images"),
    ],
)
def test_a_wrapped_token_list_that_cannot_be_read_is_refused(context: Context, packed: list[int], match: str) -> None:
    file = state_to_file(context.save_state(0), np.array(packed, np.int32))
    with pytest.raises(StateError, match=match):
        file_to_state(file)
