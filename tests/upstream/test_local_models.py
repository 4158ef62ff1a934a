"""The small models that stand for those of a hub say what they are made to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyggml import Batch, Context, ContextParams, Model
from tests.upstream.chain_model import Chain, write_chain_model
from tests.upstream.local_models import CODE, STORY, WRITTEN, folder, local_file
from tests.upstream.vocabulary import read_vocabulary


def text_of(path: Path, n_tokens: int) -> str:
    """What the model says after its own start."""
    with Model(str(path)) as model, Context(model, ContextParams(n_ctx=64)) as context:
        tokens = model.vocab.tokenize("Look in thy glass").tolist()
        said = []
        n_past = 0
        for _ in range(n_tokens):
            context.decode(Batch.from_arrays(tokens, range(n_past, n_past + len(tokens)), 0))
            n_past += len(tokens)
            tokens = [int(context.logits().argmax())]
            said += tokens
        return model.vocab.detokenize(said)


@pytest.mark.parametrize(
    ("vocabulary", "chain", "has_experts", "expected"),
    [("llama-spm", STORY, True, "little wise day little"), ("refact", CODE, False, "small spark small spark")],
)
def test_a_chain_model_says_its_words_in_turn(
    tmp_path: Path, vocabulary: str, chain: Chain, has_experts: bool, expected: str
) -> None:
    path = write_chain_model(tmp_path / "chain.gguf", read_vocabulary(vocabulary), chain, has_experts)
    assert text_of(path, 4).strip() == expected


def test_a_model_without_a_file_is_known_as_such() -> None:
    assert local_file("ggml-org/no-such-model-GGUF:Q8_0") is None
    assert {local_file(name) for name in WRITTEN} == {folder() / model.file_name for model in WRITTEN.values()}
    assert len({model.file_name for model in WRITTEN.values()}) == len(WRITTEN)


def test_a_word_that_is_no_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'unheard of' is no token"):
        write_chain_model(tmp_path / "x.gguf", read_vocabulary("refact"), Chain(words=("unheard of",)))
