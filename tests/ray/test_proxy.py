"""What a client gets through Ray's proxy when a replica does not come to its end, and the session of a request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pyggml_server.ray.proxy import ReplicaEnds, middlewares, with_session
from starlette.types import Message, Scope

CHAT = "/v1/chat/completions"
EVENT = b'data: {"choices":[]}\n\n'


def scope(path: str = CHAT, query: bytes = b"", **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": named}


def start(content_type: str, status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"Content-Type", content_type.encode())]}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def through_the_proxy(*messages: Message, path: str = CHAT) -> list[Message]:
    """What the client gets where the proxy behind the middleware sends these messages and returns."""
    sent: list[Message] = []

    async def proxy(_scope: Scope, _receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def receive() -> Message:
        raise AssertionError("nothing is read here")

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(ReplicaEnds(proxy)(scope(path), receive, send))
    return sent


def test_a_response_that_ends_is_left_as_it_is() -> None:
    whole = [start("text/event-stream"), body(EVENT, more=True), body(b"")]
    assert through_the_proxy(*whole) == whole
    refused = [start("application/json; charset=utf-8", 503), body(b"{}")]
    assert through_the_proxy(*refused) == refused


def test_a_stream_that_breaks_off_ends_with_an_error_event() -> None:
    *before, last = through_the_proxy(start("text/event-stream"), body(EVENT, more=True))
    assert before == [start("text/event-stream"), body(EVENT, more=True)]
    assert not last["more_body"]
    data = last["body"].decode().strip().removeprefix("data: ")
    assert json.loads(data)["error"]["code"] == 503


@pytest.mark.parametrize(("path", "where"), [("/v1/messages", "error"), ("/v1/responses", None)])
def test_the_event_has_the_form_of_the_api(path: str, where: str | None) -> None:
    last = through_the_proxy(start("text/event-stream"), body(EVENT, more=True), path=path)[-1]["body"].decode()
    name, data = last.strip().split("\n")
    assert name == "event: error"
    event = json.loads(data.removeprefix("data: "))
    assert event["type"] == "error"
    assert "another replica" in (event[where] if where else event)["message"]


def test_a_whole_body_that_breaks_off_stays_short() -> None:
    broken = [start("application/json"), body(b'{"a":', more=True)]
    assert through_the_proxy(*broken) == broken


@pytest.mark.parametrize("messages", [(), (start("text/plain; charset=utf-8", 503), body(b"Request dropped"))])
def test_a_request_without_a_replica_gets_an_error_object_that_says_to_try_again(messages: tuple[Message, ...]) -> None:
    first, last = through_the_proxy(*messages)
    assert first["status"] == 503
    assert (b"retry-after", b"1") in first["headers"]
    assert json.loads(last["body"])["error"]["type"] == "unavailable_error"


def session(asked: Scope) -> str | None:
    return next((value.decode() for name, value in with_session(asked)["headers"] if name == b"x-session-id"), None)


def test_a_session_is_ray_s_header_or_else_the_conversation() -> None:
    assert session(scope(x_session_id="a", x_conversation_id="b")) == "a"
    assert session(scope(x_conversation_id="b")) == "b"
    assert session(scope("/v1/stream", b"conv_id=c&from=0")) == "c"
    assert session(scope()) is None


def test_ray_gets_no_session_that_it_cannot_read() -> None:
    assert session(scope(x_conversation_id="h\xe9")) is None


def test_ray_is_given_this_middleware() -> None:
    classes: list[object] = [middleware.cls for middleware in middlewares()]
    assert classes == [ReplicaEnds]
