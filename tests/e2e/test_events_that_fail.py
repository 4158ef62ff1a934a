"""Events that cannot be made, or that have in them what JSON cannot carry: their stream ends with an error or says it
all, and the streams next to it say what they say alone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.program import ServerProcess
from tests.e2e.sse import EventStream, post_stream

N_TOKENS = 8
SAID = "a" * N_TOKENS
FAILURE = "The model produced output that does not match the expected"


def saying(server: ServerProcess, text: str, **more: object) -> dict[str, Any]:
    """A body to which any model says the first token of this text, over and over."""
    token = server.post("/tokenize", {"content": text}).json()["tokens"][0]
    return saying_token(token, **more)


def saying_token(token: int, **more: object) -> dict[str, Any]:
    body = {"prompt": "Say", "temperature": 0, "n_predict": N_TOKENS, "cache_prompt": False}
    return {**body, "logit_bias": [[token, 100.0]], **more}


def refusing(text: str) -> str:
    """A parser of answers, as a body may bring it, that takes any but those which begin so."""
    parsers = [
        {"type": "literal", "literal": text},
        {"type": "not", "child": 0},
        {"type": "until", "delimiters": ["\x01"]},
        {"type": "sequence", "children": [1, 2]},
    ]
    return json.dumps({"parsers": parsers, "rules": {}, "root": 3})


def streams_side_by_side(server: ServerProcess, path: str, bodies: list[dict[str, Any]]) -> list[EventStream]:
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: post_stream(server, path, body), bodies))


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
@pytest.mark.parametrize("n_said", [2, 5, N_TOKENS], ids=["the second", "one between", "the last"])
def test_an_event_that_cannot_be_made_ends_its_stream_with_an_error_and_no_other(
    ours: ServerProcess, path: str, n_said: int
) -> None:
    body = saying(ours, "a")
    fails = {**body, "chat_parser": refusing(SAID[:n_said])}
    first, failed, last = streams_side_by_side(ours, path, [body, fails, body])
    assert (first.text, last.text) == (SAID, SAID)
    assert failed.error is not None
    assert FAILURE in failed.error["message"]
    assert (failed.text, failed.is_done) == (SAID[: n_said - 1], False)
    assert post_stream(ours, path, body).text == SAID


def test_a_first_event_that_cannot_be_made_is_an_error_or_the_whole_stream(ours: ServerProcess) -> None:
    fails = saying(ours, "a", chat_parser=refusing("a"), stream=True)
    with ours.post("/completion", fails) as response:
        assert FAILURE in response.text
        assert '"content":"a"' not in response.text
    assert post_stream(ours, "/completion", saying(ours, "a")).text == SAID


def test_bytes_that_are_no_text_end_no_stream(ours: ServerProcess) -> None:
    """Each token of two characters, over and over: most are a part of a character that no other part follows."""
    tokens = ours.post("/tokenize", {"content": "\U0001f9ea\U0001f9ec"}).json()["tokens"]
    bodies = [saying_token(token, n_probs=3) for token in sorted(set(tokens))]
    assert len(bodies) >= 4
    *streams, beside = streams_side_by_side(ours, "/completion", [*bodies, saying(ours, "a")])
    for stream, body in zip(streams, bodies, strict=True):
        whole = ours.post("/completion", body).json()
        assert (stream.error, stream.text) == (None, whole["content"])
        assert stream.events[-1]["stop"] is True
    assert beside.text == SAID


def test_probabilities_of_a_hundred_tokens_for_each_are_streamed(ours: ServerProcess) -> None:
    large, beside = streams_side_by_side(
        ours, "/completion", [saying(ours, "a", n_probs=100), saying(ours, "a", logit_bias=[])]
    )
    shown = [event["completion_probabilities"][0]["top_logprobs"] for event in large.events if not event["stop"]]
    assert [len(of_token) for of_token in shown] == [100] * N_TOKENS
    assert (large.text, beside.error) == (SAID, None)
