"""Files that are no models, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.native.model_file import why_it_does_not_load


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"GGUF\x03\x00\x00\x00", "a line above says what is wrong"),
        (b"GGML", "convert_hf_to_gguf"),
        (b"tjgg\x01", "before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "a page"),
        (b"PK\x03\x04", "PyTorch"),
        (b"\x80\x02}q", "pickle"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00" + b'{"__metadata__":{}}', "safetensors"),
        (b"[project]\n", "no GGUF file"),
    ],
)
def test_a_file_is_known_by_its_first_bytes(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert word in why_it_does_not_load(path)


def test_what_llama_cpp_said_of_a_gguf_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    assert why_it_does_not_load(path, "tensor 'a' is out of bounds").startswith(
        "tensor 'a' is out of bounds (it begins"
    )


def test_a_file_that_is_not_there_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in why_it_does_not_load(tmp_path / "model.gguf")
    assert "-hf user/model" in why_it_does_not_load(tmp_path / "model.gguf")


def test_a_folder_names_the_models_in_it(tmp_path: Path) -> None:
    assert "without any GGUF file" in why_it_does_not_load(tmp_path)
    for i in range(7):
        (tmp_path / f"{i}.gguf").touch()
    assert why_it_does_not_load(tmp_path) == (
        "it is a folder: name a file in it (0.gguf, 1.gguf, 2.gguf, 3.gguf, 4.gguf, ...)"
    )


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "it cannot be read (Permission denied)" in why_it_does_not_load(tmp_path / "model.gguf")
