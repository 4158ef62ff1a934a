"""Infill: prompts made of a prefix, a suffix and other files, and every mistake, answered as llama-server does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.upstream.chain_model import Chain, write_chain_model
from tests.upstream.vocabulary import read_vocabulary

FLAGS = ("--port", "0", "-np", "2", "-c", "1024", "-b", "128", "-t", "1", "-n", "16", "-fit", "off", "--no-warmup")
CODE = {"input_prefix": '#include "llama.h"\n\nint main() {\n', "input_suffix": "}\n"}
FILE = {"filename": "llama.h", "text": "LLAMA_API int32_t llama_n_threads();\n"}

Pair = tuple[ServerProcess, ServerProcess]

ANSWERED: dict[str, dict[str, Any]] = {
    "no prompt": {},
    "a prompt": {"prompt": "    int n_threads = llama_"},
    "a prompt that is no text": {"prompt": 5},
    "a file": {"input_extra": [FILE]},
    "a file without a name": {"input_extra": [{"text": FILE["text"]}]},
    "more files than fit": {"input_extra": [FILE] * 80},
    "a prefix that is too long for a batch": {"input_prefix": "int i = 0; " * 60},
    "a suffix that is too long for a batch": {"input_suffix": "return i; " * 60},
    "a stream": {"prompt": "int", "stream": True},
    "two limits": {"n_predict": 3, "stop": ["park"]},
}
REFUSED: dict[str, Any] = {
    "no prefix": {"input_suffix": "}"},
    "no suffix": {"input_prefix": "{"},
    "a prefix that is a number": {**CODE, "input_prefix": 5},
    "files that are no list": {**CODE, "input_extra": "llama.h"},
    "a file without text": {**CODE, "input_extra": [{"filename": "x"}]},
    "a file whose text is a number": {**CODE, "input_extra": [{"text": 5}]},
    "a file whose name is a number": {**CODE, "input_extra": [{"text": "x", "filename": 5}]},
    "no JSON": b"{",
}


@pytest.fixture(scope="module")
def coders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("models") / "code.gguf"
    write_chain_model(path, read_vocabulary("refact"), Chain(words=("Ġsmall", "Ġspark")))
    flags = ["-m", str(path), *FLAGS]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


@pytest.mark.parametrize("what", ANSWERED)
def test_code_is_filled_in_as_stock_does_it(coders: Pair, what: str) -> None:
    body = {**CODE, "temperature": 0, "cache_prompt": False, **ANSWERED[what]}
    assert assert_same_answer(*coders, "POST", "/infill", body)[0] == 200


@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_in_an_infill_request_is_told_as_stock_tells_it(coders: Pair, what: str) -> None:
    assert assert_same_answer(*coders, "POST", "/infill", REFUSED[what])[0] != 200


@pytest.mark.parametrize("body", [CODE, {}, b"", b"{"], ids=repr)
def test_a_model_without_tokens_for_it_says_so_whatever_is_asked(
    ours: ServerProcess, stock: ServerProcess, body: Any
) -> None:
    assert assert_same_answer(ours, stock, "POST", "/infill", body)[0] == 501
