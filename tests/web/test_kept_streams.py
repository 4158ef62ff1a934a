"""Streams with an X-Conversation-Id: they go on without their client, can be read again, looked up and stopped."""

from __future__ import annotations

import asyncio

import pytest
import requests
from pyggml_server.errors import error_object
from pyggml_server.messages import Failed
from pyggml_server.web.stream_store import KEPT_AFTER_END_S, KeptStream, OffsetLostError, StreamStore

from tests.web.fakes import PATIENCE_S, token
from tests.web.running import Running, one_error

CONVERSATION = "chat::org/model"
HEADERS = {"X-Conversation-Id": CONVERSATION}
ADDRESS = "/v1/stream?conv_id=chat%3A%3Aorg%2Fmodel"


def begin(server: Running, body: str = '{"stream":true}') -> tuple[requests.Response, int]:
    """A stream that has said `1`, and the id of its task."""
    posting = server.posting_stream(body, headers=HEADERS)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say_tokens(task_id, b"1")
    response = posting.response()
    assert response.headers["content-type"] == "text/event-stream"
    return response, task_id


def leave_in_line(server: Running) -> int:
    """A stream that has not begun and whose client has left; the id of its task."""
    with server.raw_post("/v1/completions", '{"stream":true}', HEADERS):
        (task_id,) = server.engine.next_task_ids()
    return task_id


def looked_up(server: Running) -> list[tuple[bool, int]]:
    """Whether the conversation's stream has ended and how many bytes it said; nothing without one."""
    found = server.post("/v1/streams/lookup", json={"conversation_ids": [CONVERSATION]}).json()
    return [(stream["is_done"], stream["total_bytes"]) for stream in found]


def test_a_stream_goes_on_when_its_client_leaves_and_can_be_read_from_its_beginning(server: Running) -> None:
    response, task_id = begin(server)
    response.close()
    server.engine.say_tokens(task_id, b"2")
    server.engine.finish(task_id, b"3")
    expected = "data: 1\n\ndata: 2\n\ndata: 3\n\ndata: [DONE]\n\n"
    again = server.get(ADDRESS)
    assert (again.text, again.headers["content-type"]) == (expected, "text/event-stream")
    assert server.get(ADDRESS + "&from=9").text == expected[9:]
    assert server.engine.inbound.empty(), "nothing was cancelled"


def test_who_reads_while_it_runs_gets_what_was_said_and_what_follows(server: Running) -> None:
    _, task_id = begin(server)
    with server.get(ADDRESS, stream=True) as reading:
        lines = reading.iter_lines(chunk_size=1)
        assert next(lines) == b"data: 1"
        server.engine.finish(task_id, b"2")
        assert [line for line in lines if line] == [b"data: 2", b"data: [DONE]"]


def test_an_id_outside_ascii_is_the_same_in_header_query_and_body(server: Running) -> None:
    with server.raw_post("/v1/completions", '{"stream":true}', {"X-Conversation-Id": "ü"}):
        (task_id,) = server.engine.next_task_ids()
        server.engine.finish(task_id, b"1")
    (found,) = server.post("/v1/streams/lookup", json={"conversation_ids": ["ü"]}).json()
    assert found["conversation_id"] == "ü"
    assert server.get("/v1/stream?conv_id=%C3%BC").content == b"data: 1\n\ndata: [DONE]\n\n"


def test_stopping_it_cancels_its_task_and_forgets_it(server: Running) -> None:
    _, task_id = begin(server)
    stopped = server.request("DELETE", ADDRESS)
    assert (stopped.status_code, stopped.content) == (204, b"")
    assert server.engine.next_cancelled_id() == task_id
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)
    assert one_error(server.get(ADDRESS)) == (404, "not_found_error", "File Not Found")
    assert server.request("DELETE", ADDRESS).status_code == 204


def test_the_next_completion_of_a_conversation_ends_the_one_before_it(server: Running) -> None:
    _, first = begin(server)
    _, second = begin(server)
    assert server.engine.next_cancelled_id() == first
    server.engine.finish(second, b"2")
    assert server.get(ADDRESS).text == "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"


def test_an_error_before_the_stream_leaves_nothing_behind(server: Running) -> None:
    assert server.post("/v1/completions", data="no JSON", headers=HEADERS).status_code == 400
    assert server.get(ADDRESS).status_code == 404


def test_a_stream_goes_on_when_its_client_leaves_while_it_waits_in_line(server: Running) -> None:
    task_id = leave_in_line(server)
    assert looked_up(server) == [(False, 0)]  # by then the server has seen the client leave
    with server.get(ADDRESS, stream=True) as reading:
        server.engine.say_tokens(task_id, b"1")
        server.engine.finish(task_id, b"2")
        assert reading.text == "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert server.engine.inbound.empty(), "nothing was cancelled"


def test_an_error_in_place_of_a_stream_whose_client_left_leaves_nothing_behind(server: Running) -> None:
    task_id = leave_in_line(server)
    reading = server.get(ADDRESS, stream=True)
    server.engine.say(Failed(task_id, *error_object("too long", "exceed_context_size_error")))
    assert reading.content == b"", "its reader's answer ends"
    assert looked_up(server) == []
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)


def test_an_error_in_place_of_a_stream_is_its_clients_answer(server: Running) -> None:
    posting = server.posting_stream('{"stream":true}', headers=HEADERS)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Failed(task_id, *error_object("too long", "invalid_request_error")))
    assert one_error(posting.response()) == (400, "invalid_request_error", "too long")
    assert looked_up(server) == []


def test_a_stream_that_is_stopped_before_it_begins_ends_empty(server: Running) -> None:
    posting = server.posting_stream('{"stream":true}', headers=HEADERS)
    (task_id,) = server.engine.next_task_ids()
    assert looked_up(server) == [(False, 0)]
    assert server.request("DELETE", ADDRESS).status_code == 204
    assert server.engine.next_cancelled_id() == task_id
    response = posting.response()
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"] == "text/event-stream"
    assert server.get(ADDRESS).status_code == 404


def test_the_next_completion_ends_one_that_has_not_begun(server: Running) -> None:
    posting = server.posting_stream('{"stream":true}', headers=HEADERS)
    (first,) = server.engine.next_task_ids()
    _, second = begin(server)
    assert server.engine.next_cancelled_id() == first
    assert posting.response().content == b""
    server.engine.finish(second, b"2")
    assert server.get(ADDRESS).text == "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"


def test_who_stops_a_conversation_ends_its_readers_without_a_mark(server: Running) -> None:
    posted, _ = begin(server)
    with server.get(ADDRESS, stream=True) as reading:
        assert server.request("DELETE", ADDRESS).status_code == 204
        assert reading.content == posted.content == b"data: 1\n\n"


def test_an_answer_that_comes_all_at_once_is_no_stream_to_stop_but_can_be_found(server: Running) -> None:
    posting = server.posting_stream("{}", headers=HEADERS)
    (task_id,) = server.engine.next_task_ids()
    assert looked_up(server) == [(False, 0)]
    assert server.request("DELETE", ADDRESS).status_code == 204
    server.engine.finish(task_id, b'"all"')
    assert posting.response().json() == "all"
    assert server.engine.inbound.empty(), "nothing was cancelled"
    assert looked_up(server) == []


@pytest.mark.parametrize("path", ["/embedding", "/v1/embeddings", "/rerank"])
def test_what_generates_no_text_has_no_conversation(server: Running, path: str) -> None:
    _, task_id = begin(server)
    posting = server.posting_stream("{}", path, HEADERS)
    (other,) = server.engine.next_task_ids()
    server.engine.finish(other, b"[]")
    assert posting.response().json() == []
    server.engine.finish(task_id, b"2")
    assert server.get(ADDRESS).text == "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"


def test_only_conversations_that_are_named_are_looked_up(server: Running) -> None:
    _, task_id = begin(server)
    server.engine.say(token(task_id, b"22"))
    server.engine.finish(task_id, b"3")
    n_bytes = len(server.get(ADDRESS).content)  # it has ended
    known: list[list[object]] = [["chat"], [CONVERSATION], ["other", "", 5, "chat"]]
    for names in known:
        (found,) = server.post("/v1/streams/lookup", json={"conversation_ids": names}).json()
        assert list(found) == ["conversation_id", "is_done", "total_bytes", "started_at", "completed_at"]
        assert (found["conversation_id"], found["is_done"], found["total_bytes"]) == (CONVERSATION, True, n_bytes)
    unknown: list[object] = [[], ["cha"], ["chat::"], "chat", None]
    for wanted in unknown:
        assert server.post("/v1/streams/lookup", json={"conversation_ids": wanted}).json() == []


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/v1/stream", 400, "Missing conversation id in path"),
        ("/v1/stream?conv_id=", 400, "Missing conversation id in path"),
        ("/v1/stream?conv_id=nobody", 404, "File Not Found"),
    ],
)
def test_a_stream_that_is_not_there(server: Running, path: str, status: int, message: str) -> None:
    code, _, said = one_error(server.get(path))
    assert (code, said) == (status, message)


@pytest.mark.parametrize("offset", ["x", "-1", "1.5"])
def test_an_offset_is_a_number(server: Running, offset: str) -> None:
    begin(server)
    assert one_error(server.get(f"{ADDRESS}&from={offset}"))[2] == "Invalid 'from' offset"


def test_a_body_that_is_no_lookup(server: Running) -> None:
    response = server.post("/v1/streams/lookup", data="{")
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith("invalid body: ")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def said(store: StreamStore, *chunks: bytes) -> tuple[KeptStream, asyncio.Future[None]]:
    """The stream of conversation `a`, and the task that says these."""

    async def fill(kept: KeptStream) -> None:
        for chunk in chunks:
            await kept.send({"type": "http.response.body", "body": chunk, "more_body": True})

    kept = store.open("a", lambda: None)
    kept.begin(fill)
    assert kept.producer is not None
    return kept, kept.producer


def test_a_stream_is_forgotten_some_time_after_its_end() -> None:
    async def scenario() -> None:
        clock = Clock()
        store = StreamStore(clock)
        kept, saying = said(store, b"1")
        clock.now_s += 2 * KEPT_AFTER_END_S
        assert store.find("a") is kept, "it has not ended"
        await saying
        clock.now_s += KEPT_AFTER_END_S - 1
        assert store.find("a") is kept
        clock.now_s += 1
        assert store.find("a") is None

    asyncio.run(scenario())


def test_the_oldest_bytes_go_when_there_are_too_many() -> None:
    async def scenario() -> None:
        kept, saying = said(StreamStore(max_bytes=4), b"123", b"456")
        await saying
        assert kept.facts.total_bytes == 6
        assert [chunk async for chunk in kept.read_from(2)] == [b"3456"]
        with pytest.raises(OffsetLostError, match="bytes 1 to 2 of the stream are gone"):
            kept.check_offset(1)

    asyncio.run(scenario())
