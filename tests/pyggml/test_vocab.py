"""Text to tokens and back."""

from __future__ import annotations

import numpy as np
import pytest

from pyggml import InvalidArgumentError, Model


@pytest.mark.parametrize("text", ["", "Hello world", "naïve café, 東京, 🙂", " leading and trailing ", "a\0b"])
def test_text_survives_the_way_to_tokens_and_back(model: Model, text: str) -> None:
    tokens = model.vocab.tokenize(text, add_special=False)
    assert tokens.dtype == np.int32
    assert model.vocab.detokenize(tokens) == text


def test_more_tokens_than_a_first_guess_are_not_cut(model: Model) -> None:
    text = "\U0001f9ec" * 5000
    assert model.vocab.detokenize(model.vocab.tokenize(text, add_special=False)) == text


def test_special_tokens_are_read_only_on_request(model: Model) -> None:
    assert len(model.vocab.tokenize("<|im_end|>", parse_special=True)) == 1
    assert len(model.vocab.tokenize("<|im_end|>", parse_special=False)) > 1


def test_the_end_of_a_turn_ends_a_generation(model: Model) -> None:
    (end,) = model.vocab.tokenize("<|im_end|>", parse_special=True)
    assert model.vocab.is_end(int(end))
    assert not model.vocab.is_end(int(model.vocab.tokenize("a")[0]))


def test_a_piece_is_the_bytes_of_a_token(model: Model) -> None:
    tokens = model.vocab.tokenize("東京 tower", add_special=False)
    assert b"".join(model.vocab.piece(int(token)) for token in tokens).decode() == "東京 tower"


def test_a_character_cut_in_two_becomes_a_replacement(model: Model) -> None:
    tokens = model.vocab.tokenize("🙂", add_special=False)
    assert len(tokens) > 1
    assert "\ufffd" in model.vocab.detokenize(tokens[:1])


def test_bytes_are_taken_as_they_are(model: Model) -> None:
    assert model.vocab.tokenize(b"Hello").tolist() == model.vocab.tokenize("Hello").tolist()


def test_text_that_is_no_utf8_does_not_end_the_process(model: Model) -> None:
    assert len(model.vocab.tokenize(b"\xff\xfe\xc3 broken")) > 0


@pytest.mark.parametrize("token", [-1, 49152, 2**40])
def test_a_token_outside_the_vocabulary_is_refused(model: Model, token: int) -> None:
    for use in (model.vocab.piece, model.vocab.is_end, lambda t: model.vocab.detokenize([t])):
        with pytest.raises(InvalidArgumentError, match="not in the vocabulary"):
            use(token)


def test_tokens_must_be_integers(model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="integers"):
        model.vocab.detokenize(np.array([1.5, 2.5]))
