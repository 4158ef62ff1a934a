"""Completions that are answered as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import requests
from pyggml_server.errors import error_object
from pyggml_server.messages import Began, Cancelled, Failed, Finished, Notice
from pyggml_server.web.service import Service

from tests.web.fakes import PATIENCE_S, token
from tests.web.running import Running, one_error

STREAM = '{"stream":true}'
SERVER_ERROR = error_object("something broke", "server_error")


def events(response: requests.Response) -> Iterator[str]:
    """The events and comments of a stream, each without its blank line."""
    lines: list[str] = []
    for line in response.iter_lines(chunk_size=1, decode_unicode=True):
        if line:
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    assert not lines, f"the stream ends in the middle of an event: {lines}"


def test_the_headers_come_as_soon_as_the_prompt_is_processed(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id))
    with opening.response() as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["x-accel-buffering"] == "no"


def test_tokens_are_sent_one_by_one_and_done_ends_the_stream(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id))
    with opening.response() as response:
        stream = events(response)
        for word in ("1", "2", "3"):
            server.engine.say_tokens(task_id, word.encode())
            assert next(stream) == f"data: {word}"
        server.engine.finish(task_id, b'"end"')
        assert list(stream) == ['data: "end"', "data: [DONE]"]
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)
    assert server.engine.inbound.empty()


def test_tokens_and_notices_are_written_without_a_worker_thread(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    called: list[str] = []
    in_thread = Service.in_thread

    async def noted(service: Service, function: Callable[..., object], *arguments: object) -> object:
        called.append(getattr(function, "__name__", ""))
        return await in_thread(service, function, *arguments)

    monkeypatch.setattr(Service, "in_thread", noted)
    server.engine.say(Began(task_id))
    with opening.response() as response:
        stream = events(response)
        for word in ("1", "2", "3"):
            server.engine.say(token(task_id, word.encode()), Notice(task_id, "resumed"))
            assert [next(stream), next(stream)] == [f"data: {word}", ": resumed"]
        assert called == []
        server.engine.finish(task_id, b"4")
        assert list(stream) == ["data: 4", "data: [DONE]"]
        assert called[0] == "render"


def test_llama_servers_own_api_ends_without_done(server: Running) -> None:
    opening = server.posting_stream(STREAM, "/completion")
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(token(task_id, b"1"), Finished(task_id, b"2"))
    with opening.response() as response:
        assert list(events(response)) == ["data: 1", "data: 2"]


def test_an_error_before_the_first_token_is_a_plain_response(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Failed(task_id, *error_object("too long", "exceed_context_size_error")))
    with opening.response() as response:
        assert one_error(response) == (400, "exceed_context_size_error", "too long")


def test_a_later_error_is_an_event_and_the_end_without_done(server: Running) -> None:
    opening = server.posting_stream('{"stream":true,"n":2}')
    first, second = server.engine.next_task_ids(2)
    server.engine.say(token(first, b"1"), Failed(first, *SERVER_ERROR), token(second, b"2"))
    with opening.response() as response:
        error = '{"error":' + SERVER_ERROR[1].decode() + "}"
        assert list(events(response)) == ["data: 1", f"data: {error}"]
    assert server.engine.next_cancelled_id() == second


def test_a_task_that_the_engine_cancels_ends_the_stream_with_an_error(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(token(task_id, b"1"), Cancelled(task_id))
    with opening.response() as response:
        first, last = events(response)
        assert first == "data: 1"
        assert "unavailable_error" in last


def test_a_payload_that_cannot_be_formatted_ends_the_stream_with_an_error(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(token(task_id, b"1"), Finished(task_id, b"broken"), token(task_id, b"2"))
    with opening.response() as response:
        first, last = events(response)
        assert first == "data: 1"
        assert "this payload is broken" in last


def test_a_notice_is_a_comment(server: Running) -> None:
    opening = server.posting_stream(STREAM)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id), Notice(task_id, "preempted"), Notice(task_id, "resumed"), Finished(task_id, b"1"))
    with opening.response() as response:
        assert list(events(response)) == [": preempted", ": resumed", "data: 1", "data: [DONE]"]


def test_silence_is_filled_with_pings(server: Running) -> None:
    opening = server.posting_stream('{"stream":true,"ping":0.001}')
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id))
    with opening.response() as response:
        stream = events(response)
        assert [next(stream), next(stream)] == [":", ":"]
        server.engine.finish(task_id, b"1")
        assert [event for event in stream if event != ":"] == ["data: 1", "data: [DONE]"]


def test_a_parked_stream_is_kept_alive(server: Running) -> None:
    opening = server.posting_stream('{"stream":true,"ping":0.001}')
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(token(task_id, b"1"), Notice(task_id, "preempted"))
    with opening.response() as response:
        stream = events(response)
        assert [next(stream) for _ in range(4)] == ["data: 1", ": preempted", ":", ":"]
        server.engine.say(Notice(task_id, "resumed"), Finished(task_id, b"2"))
        assert [event for event in stream if event != ":"] == [": resumed", "data: 2", "data: [DONE]"]


def test_several_tasks_share_a_stream_and_the_last_one_ends_it(server: Running) -> None:
    opening = server.posting_stream('{"stream":true,"n":2}')
    first, second = server.engine.next_task_ids(2)
    server.engine.say(token(second, b"2a"), token(first, b"1a"))
    server.engine.say(Finished(second, b"2b"))
    server.engine.say(token(first, b"1b"), Finished(first, b"1c"))
    with opening.response() as response:
        texts = [event.removeprefix("data: ") for event in events(response)]
    assert texts == ["2a", "1a", "2b", "1b", "1c", "[DONE]"]
