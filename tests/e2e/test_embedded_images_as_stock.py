"""Embeddings of prompts with images and sounds: the vectors of llama-server of the same tree, and its errors."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.e2e.comparing import ask, ask_both, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.hearing_models import MEDIA_WRITERS, file_for

MARKER = "<__media__>"
FLAGS = ["--host", "127.0.0.1", "--port", "0", "-c", "1024", "-np", "2", "-t", "1", "--kv-unified", "--no-warmup"]
FLAGS += ["-fit", "off", "--cache-ram", "0", "--image-max-tokens", "64", "--embeddings"]
TOLERANCE = 1e-5

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module", params=["gemma mean", "qwen last", "qwen none", "ultravox mean"])
def embedders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers with a model that sees or hears, and one pooling."""
    kind, pooling = request.param.split()
    argv = [*MEDIA_WRITERS[kind](tmp_path_factory.mktemp(kind)).argv, *FLAGS, "--pooling", pooling]
    environment = {"LLAMA_MEDIA_MARKER": MARKER}
    with running(our_program(), argv, environment) as ours, running(stock_program(), argv, environment) as stock:
        yield ours, stock


def media(pair: Pair, seed: int) -> str:
    """An image, or a sound if the model only hears."""
    return base64.b64encode(file_for(pair[0].get("/props").content, seed)).decode()


def prompt(pair: Pair, *seeds: int) -> dict[str, Any]:
    told = "Look at" + "".join(f" {MARKER} and {seed}" for seed in seeds)
    return {"prompt_string": told, "multimodal_data": [media(pair, seed) for seed in seeds]}


def part(pair: Pair, data: str) -> dict[str, Any]:
    if pair[0].get("/props").json()["modalities"]["vision"]:
        return {"type": "image_url", "image_url": {"url": data}}
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def message(pair: Pair, *seeds: int) -> dict[str, Any]:
    """The same prompt as the content of a message."""
    content: list[dict[str, Any]] = [{"type": "text", "text": "Look at"}]
    for seed in seeds:
        content += [
            {"type": "text", "text": " "},
            part(pair, media(pair, seed)),
            {"type": "text", "text": f" and {seed}"},
        ]
    return {"content": content}


def vectors_of(answer: Any) -> Any:
    status, _, body = answer
    assert status == 200, body
    return [np.array(one["embedding"]) for one in body]


def assert_same_vectors(pair: Pair, prompts: list[Any]) -> Any:
    """Both servers embed them alike. The vectors. One prompt at a time: which of several share a batch, and where their
    cells lie, changes the last bits."""
    answers = [ask_both(*pair, "POST", "/embeddings", {"content": [prompt]}) for prompt in prompts]
    ours = [vectors_of(our_answer)[0] for our_answer, _ in answers]
    stock = [vectors_of(theirs)[0] for _, theirs in answers]
    for our_vector, theirs in zip(ours, stock, strict=True):
        assert np.isfinite(our_vector).all()
        np.testing.assert_allclose(our_vector, theirs, rtol=0, atol=TOLERANCE)
    return ours


def test_prompts_with_one_image_with_two_and_with_none_have_the_vectors_of_stock(embedders: Pair) -> None:
    prompts = [prompt(embedders, 1), prompt(embedders, 2), prompt(embedders, 1, 2), "Look at nothing"]
    one, other, _, _ = assert_same_vectors(embedders, prompts)
    assert not np.allclose(one, other, atol=100 * TOLERANCE)


def test_a_message_has_the_vector_of_the_same_prompt(embedders: Pair) -> None:
    in_message, in_prompt = assert_same_vectors(embedders, [message(embedders, 1, 2), prompt(embedders, 1, 2)])
    np.testing.assert_allclose(in_message, in_prompt, rtol=0, atol=TOLERANCE)


def test_openai_s_api_counts_the_tokens_of_the_image(embedders: Pair) -> None:
    body = {"input": [message(embedders, 3), "Look"], "encoding_format": "base64"}
    ours, stock = ask_both(*embedders, "POST", "/v1/embeddings", body)
    assert ours[0] == stock[0]
    if ours[0] == 200:
        assert ours[2]["usage"] == stock[2]["usage"]
        assert ours[2]["usage"]["prompt_tokens"] > 16
        decoded = [
            np.array(list(struct.iter_unpack("<f", base64.b64decode(one["embedding"]))))
            for answer in (ours, stock)
            for one in answer[2]["data"]
        ]
        np.testing.assert_allclose(decoded[0], decoded[2], rtol=0, atol=TOLERANCE)
    else:
        assert ours == stock  # pooling 'none' is not for this API


def test_an_answer_is_the_same_again(embedders: Pair) -> None:
    """Nothing of the first request is left in the slot."""
    again = [
        vectors_of(ask(embedders[0], "POST", "/embeddings", {"content": [prompt(embedders, 4)]})) for _ in range(2)
    ]
    np.testing.assert_array_equal(again[0][0], again[1][0])


@pytest.mark.parametrize("data", ["bm90IGEgZmlsZQ==", "data:text/html;base64,aGVsbG8=", "file:///etc/passwd"])
def test_what_is_no_image_is_refused_as_there(embedders: Pair, data: str) -> None:
    ours, stock = ask_both(*embedders, "POST", "/embeddings", {"content": {"content": [part(embedders, data)]}})
    assert ours[0] == 400, ours
    assert stock[0] in (400, 500)
    ours, stock = ask_both(
        *embedders, "POST", "/embeddings", {"content": {"prompt_string": MARKER, "multimodal_data": [data]}}
    )
    assert ours[0] == 400, ours
    assert stock[0] in (400, 500)


@pytest.mark.parametrize("content", [[{"type": "smell"}], [{"type": "text", "text": ""}], "text", [{}]])
def test_a_mistake_in_a_message_is_told_as_stock_tells_it(embedders: Pair, content: object) -> None:
    assert_same_answer(*embedders, "POST", "/embeddings", {"content": {"content": content}})


def test_an_address_of_a_private_network_is_not_asked(embedders: Pair) -> None:
    here = part(embedders, embedders[0].url + "/health")
    status, _, answer = ask(embedders[0], "POST", "/embeddings", {"input": [{"content": [here]}]})
    assert status == 400
    assert "is an address of a private network" in answer["error"]["message"]


def test_more_than_a_batch_holds_is_refused_as_there(embedders: Pair) -> None:
    """Pooling needs all of it together; what only the last token says may come in parts."""
    long = prompt(embedders, 1)
    long["prompt_string"] += "x" * 600
    assert_same_answer(*embedders, "POST", "/embeddings", {"content": [long]})
