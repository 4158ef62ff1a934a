"""The Responses and the Messages API, and counting: what llama-server says, streamed or not, and its errors.

Their frames are another matter: see test_responses_api.py and test_messages_api.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_QUESTION, ask, assert_same_answer, unmeant_differences
from tests.e2e.conftest import StartServer
from tests.e2e.framed import told
from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream

GREEDY = {"temperature": 0, "seed": 1}
HI = [{"role": "user", "content": CLEAR_QUESTION}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
RESPONSE = {"input": CLEAR_QUESTION, "max_output_tokens": 6, **GREEDY}
MESSAGE = {"messages": HI, "max_tokens": 6, **GREEDY}

RESPONSE_FIELDS: list[dict[str, Any]] = [
    {},
    {"instructions": "Be short."},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": CLEAR_QUESTION}]}]},
    {"input": [*HI, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]}, *HI]},
    {"input": []},
    {"input": 5},
    {"input": [{"type": "nope"}]},
    {"previous_response_id": "resp_1"},
    {"max_output_tokens": "x"},
    {"model": "gpt-5"},
    {"tools": [{"type": "function", "name": "f", "description": "d", "parameters": PARAMETERS}]},
    {"tools": [{"type": "function", "name": "f", "parameters": PARAMETERS}], "tool_choice": "required"},
    {"tools": [{"type": "web_search"}]},
    {"reasoning": {"effort": "low"}},
    {"return_progress": True},
    {"input": "long " * 600},
]
MESSAGE_FIELDS: list[dict[str, Any]] = [
    {},
    {"system": "Be short."},
    {"system": [{"type": "text", "text": "Be short."}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": CLEAR_QUESTION}]}]},
    {"messages": [*HI, {"role": "assistant", "content": "Ho"}, *HI]},
    {"messages": []},
    {"messages": [{"role": "user", "content": [{"type": "nope"}]}]},
    {"max_tokens": None},
    {"top_k": 1},
    {"model": "claude"},
    {"metadata": {"user_id": "u"}},
    {"tools": [{"name": "f", "description": "d", "input_schema": PARAMETERS}]},
    {"tools": [{"name": "f", "input_schema": PARAMETERS}], "tool_choice": {"type": "any"}},
    {"thinking": {"type": "enabled", "budget_tokens": 10}},
    {"messages": [{"role": "user", "content": "long " * 600}]},
]


@pytest.fixture(scope="module")
def ours(start_ours: StartServer) -> Iterator[ServerProcess]:
    """A fresh one: Messages cannot refuse cached prompts in a request, so both must hold the same ones."""
    with start_ours() as server:
        yield server


@pytest.fixture(scope="module")
def stock(start_stock: StartServer) -> Iterator[ServerProcess]:
    with start_stock() as server:
        yield server


def assert_same_words(ours: ServerProcess, stock: ServerProcess, path: str, body: dict[str, Any]) -> None:
    answers = (told(ask(server, "POST", path, body)) for server in (ours, stock))
    found = list(unmeant_differences(*answers))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", RESPONSE_FIELDS, ids=lambda fields: str(fields)[:60])
def test_a_response(ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool) -> None:
    assert_same_words(ours, stock, "/v1/responses", {**RESPONSE, "stream": is_streamed, **fields})


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", MESSAGE_FIELDS, ids=lambda fields: str(fields)[:60])
def test_a_message(ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool) -> None:
    assert_same_words(ours, stock, "/v1/messages", {**MESSAGE, "stream": is_streamed, **fields})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}"], ids=repr)
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/messages/count_tokens"])
def test_a_body_that_is_no_request(ours: ServerProcess, stock: ServerProcess, path: str, body: bytes) -> None:
    assert_same_answer(ours, stock, "POST", path, body)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions/input_tokens", {"messages": HI}),
        ("/v1/chat/completions/input_tokens", {"messages": 5}),
        ("/v1/responses/input_tokens", RESPONSE),
        ("/v1/responses/input_tokens", {"input": 5}),
        ("/v1/messages/count_tokens", MESSAGE),
        ("/v1/messages/count_tokens", {"messages": []}),
    ],
    ids=str,
)
def test_counting(ours: ServerProcess, stock: ServerProcess, path: str, body: dict[str, Any]) -> None:
    assert_same_answer(ours, stock, "POST", path, body)


def test_a_stream_of_responses_names_its_events_and_has_no_done(ours: ServerProcess) -> None:
    stream = post_stream(ours, "/v1/responses", RESPONSE)
    assert (stream.names[0], stream.names[-1]) == ("response.created", "response.completed")
    assert stream.names == [event["type"] for event in stream.events]
    assert not stream.is_done


def test_a_stream_of_messages_begins_and_ends_as_anthropics(ours: ServerProcess) -> None:
    stream = post_stream(ours, "/v1/messages", MESSAGE)
    assert (stream.names[0], stream.names[-1]) == ("message_start", "message_stop")
    assert not stream.is_done
