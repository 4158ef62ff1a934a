"""Loading models and asking them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyggml import Context, InvalidArgumentError, Model, ModelLoadError, UnsupportedError


def test_a_model_tells_its_shape(model: Model) -> None:
    assert model.n_layer == 30
    assert model.n_embd == 576
    assert model.n_ctx_train == 8192
    assert model.n_swa == 0
    assert [model.is_recurrent, model.is_hybrid, model.has_encoder] == [False] * 3
    assert model.size_bytes > 90_000_000
    assert "llama" in model.description


def test_metadata_holds_the_scalars_of_the_file(model: Model) -> None:
    assert model.metadata["general.architecture"] == "llama"
    assert model.metadata["llama.block_count"] == "30"


def test_long_metadata_is_not_cut(model: Model) -> None:
    assert model.metadata["tokenizer.chat_template"] == model.chat_template()


def test_a_chat_becomes_a_prompt(model: Model) -> None:
    prompt = model.apply_chat_template([("user", "Hi"), ("assistant", "Hello!"), ("user", "Bye")])
    assert prompt.startswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>")
    assert prompt.endswith("<|im_start|>assistant\n")


def test_a_long_chat_is_not_cut(model: Model) -> None:
    messages = [("user", "é" * 50)] * 200
    assert model.apply_chat_template(messages).count("é") == 10_000


def test_a_missing_file_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"nowhere\.gguf.*No such file"):
        Model(tmp_path / "nowhere.gguf")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_bytes(b"this is text, not a model" * 100)
    with pytest.raises(ModelLoadError, match="invalid magic"):
        Model(tmp_path / "text.gguf")


def test_a_truncated_model_is_refused(tmp_path: Path, smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        (tmp_path / "half.gguf").write_bytes(file.read(5_000_000))
    with pytest.raises(ModelLoadError, match="not within the file bounds"):
        Model(tmp_path / "half.gguf")


def test_a_path_with_a_nul_byte_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="NUL"):
        Model("a\0b")


def test_a_vocabulary_alone_tokenizes_but_makes_no_context(model: Model, smollm2_path: Path) -> None:
    with Model(smollm2_path, vocab_only=True) as vocab_only:
        assert vocab_only.vocab.tokenize("Hello").tolist() == model.vocab.tokenize("Hello").tolist()
        with pytest.raises(UnsupportedError, match="vocab_only"):
            Context(vocab_only)
