"""Embeddings and reranking: every shape of request, and every mistake, answered as llama-server answers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import pytest

from tests.e2e.comparing import CLEAR_PROMPT, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.upstream.encoder_model import write_encoder
from tests.upstream.vocabulary import read_vocabulary

FLAGS = ("--port", "0", "-np", "2", "-t", "1", "-c", "256", "-b", "64", "-ub", "64", "-fit", "off", "--no-warmup")
DOCUMENTS = ["A machine", "Learning is the process of acquiring new understanding", "Paris, capitale de la France"]

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "encoder.gguf"
    return write_encoder(path, read_vocabulary("bert-bge"), gguf.PoolingType.CLS, seed=3)


@pytest.fixture(scope="module", params=["cls", "mean", "last", "none"])
def embedders(encoder: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both servers with one pooling."""
    flags = ["-m", str(encoder), *FLAGS, "--embeddings", "--pooling", request.param]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


@pytest.fixture(scope="module")
def rankers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    path = tmp_path_factory.mktemp("models") / "ranker.gguf"
    write_encoder(path, read_vocabulary("bert-bge"), gguf.PoolingType.RANK, seed=18)
    flags = ["-m", str(path), *FLAGS, "--reranking"]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


@pytest.fixture(scope="module")
def chats(smollm2_path: Path) -> Iterator[Pair]:
    """A causal model with a KV cache that embeds, and completes as well."""
    flags = ["-m", str(smollm2_path), *FLAGS, "--embeddings", "--pooling", "mean", "--kv-unified"]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


EMBEDDED: dict[str, Any] = {
    "one text": {"input": "I believe the meaning of life is"},
    "several texts": {"input": ["one", "two three", "four five six"]},
    "tokens": {"input": [12, 34, 56]},
    "tokens and text": {"input": [12, "string", 34]},
    "objects": {"input": [{"prompt_string": "one"}, {"content": [{"type": "text", "text": "two"}]}]},
    "content": {"content": "not a field of OpenAI's"},
    "base64": {"input": "hello world", "encoding_format": "base64"},
    "unnormalised": {"input": "hello world", "embd_normalize": -1},
    "max normalised": {"input": ["hello", "world"], "embd_normalize": 0},
    "a name": {"input": "hello", "model": "my-model"},
    "no text": {"input": ""},
}
REFUSED: dict[str, Any] = {
    "nothing": {},
    "an empty list": {"input": []},
    "a strange format": {"input": "x", "encoding_format": "hex"},
    "a format that is no text": {"input": "x", "encoding_format": 5},
    "content that is no list": {"input": {"content": "string"}},
    "content of an unknown type": {"input": {"content": [{"type": "unknown"}]}},
    "a picture": {"input": {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}},
    "multimodal data": {"input": {"prompt_string": "x <__media__>", "multimodal_data": ["AAAA"]}},
    "a token that is none": {"input": [99999999]},
    "a number": {"input": 5},
    "too many tokens for a batch": {"input": "This is a test " * 40},
    "normalised by a word": {"input": "x", "embd_normalize": "much"},
    "no JSON": b"{",
    "a list": [1],
}
RANKED: dict[str, Any] = {
    "documents": {"query": "Machine learning is", "documents": DOCUMENTS},
    "texts": {"query": "Machine learning is", "texts": DOCUMENTS},
    "texts returned": {"query": "Machine learning is", "texts": DOCUMENTS, "return_text": True},
    "the best two": {"query": "Machine learning is", "documents": DOCUMENTS, "top_n": 2},
    "more than there are": {"query": "Machine learning is", "texts": DOCUMENTS, "top_n": 99},
    "one document": {"query": "x", "documents": ["y"], "model": "my-model"},
}
NOT_RANKED: dict[str, Any] = {
    "no query": {"documents": DOCUMENTS},
    "a query that is no text": {"query": 5, "documents": DOCUMENTS},
    "no documents": {"query": "x"},
    "an empty list": {"query": "x", "documents": []},
    "a number": {"query": "x", "documents": 123},
    "numbers": {"query": "x", "documents": [1, 2, 3]},
    "a document that is too long": {"query": "x", "documents": ["short", "long " * 80]},
}


@pytest.mark.parametrize("path", ["/embedding", "/embeddings", "/v1/embeddings"])
@pytest.mark.parametrize("what", EMBEDDED)
def test_embeddings_are_those_of_stock(embedders: Pair, path: str, what: str) -> None:
    assert_same_answer(*embedders, "POST", path, EMBEDDED[what])


@pytest.mark.parametrize("path", ["/embeddings", "/v1/embeddings"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_mistake_in_an_embedding_request_is_told_as_stock_tells_it(embedders: Pair, path: str, what: str) -> None:
    assert assert_same_answer(*embedders, "POST", path, REFUSED[what])[0] != 200


def test_a_completion_of_a_model_without_a_cache_is_refused_as_stock_does(embedders: Pair) -> None:
    answer = assert_same_answer(*embedders, "POST", "/completion", {"prompt": "Once", "n_predict": 4})
    assert "does not support logits" in answer[2]["error"]["message"]


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
@pytest.mark.parametrize("what", RANKED)
def test_ranks_are_those_of_stock(rankers: Pair, path: str, what: str) -> None:
    assert assert_same_answer(*rankers, "POST", path, RANKED[what])[0] == 200


@pytest.mark.parametrize("what", NOT_RANKED)
def test_a_mistake_in_a_rerank_request_is_told_as_stock_tells_it(rankers: Pair, what: str) -> None:
    assert assert_same_answer(*rankers, "POST", "/rerank", NOT_RANKED[what])[0] != 200


@pytest.mark.parametrize("path", ["/props", "/v1/models", "/health"])
def test_a_server_that_embeds_shows_itself_as_stock_does(embedders: Pair, path: str) -> None:
    assert_same_answer(*embedders, "GET", path)


def test_a_server_that_embeds_does_not_rank(embedders: Pair) -> None:
    answer = assert_same_answer(*embedders, "POST", "/rerank", RANKED["documents"])
    assert answer[0] == 501


@pytest.mark.parametrize("path", ["/embeddings", "/v1/embeddings", "/rerank"])
def test_a_server_that_does_neither_says_so(ours: ServerProcess, stock: ServerProcess, path: str) -> None:
    assert assert_same_answer(ours, stock, "POST", path, {"input": "x"})[0] == 501


def test_a_causal_model_embeds_and_completes_in_turns(chats: Pair) -> None:
    for _ in range(2):
        assert_same_answer(*chats, "POST", "/v1/embeddings", EMBEDDED["several texts"])
        body = {"prompt": CLEAR_PROMPT, "n_predict": 6, "temperature": 0, "cache_prompt": False}
        assert_same_answer(*chats, "POST", "/completion", body)
