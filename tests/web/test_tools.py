"""GET and POST /tools over stand-in tools: threads, streams, and the end of a call."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.web.fakes import PATIENCE_S, FakeSettings
from tests.web.running import Running, one_error, running


class FakeCall:
    """A tool that ends when the test or `stop` says so. A stream gives what the test puts into `chunks`."""

    def __init__(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status, self.content_type, self.body = 200, "application/json; charset=utf-8", b"echo " + body
        self.headers = dict(headers)
        self.is_stream = b"stream" in body
        self.chunks: queue.SimpleQueue[tuple[bytes, bool]] = queue.SimpleQueue()
        self.may_end = threading.Event()
        self.running = threading.Event()
        self.stopped = threading.Event()
        self.closed = threading.Event()
        self.threads: set[str] = set()

    def run(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.running.set()
        assert self.is_stream or self.may_end.wait(PATIENCE_S)

    def next_chunk(self) -> tuple[bytes, bool]:
        self.threads.add(threading.current_thread().name)
        return self.chunks.get(timeout=PATIENCE_S)

    def stop(self) -> None:
        self.stopped.set()
        self.may_end.set()
        self.chunks.put((b"", False))

    def close(self) -> None:
        self.closed.set()


class FakeTools:
    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[FakeCall] = queue.SimpleQueue()
        self.all: list[FakeCall] = []

    def list(self) -> bytes:
        return b'[{"tool":"echo"}]'

    def new_call(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> FakeCall:
        call = FakeCall(body, headers)
        self.all.append(call)
        self.calls.put(call)
        return call

    def stop(self) -> None:
        for call in self.all:
            call.stop()

    def next_call(self) -> FakeCall:
        call = self.calls.get(timeout=PATIENCE_S)
        assert call.running.wait(PATIENCE_S)
        return call


@pytest.fixture
def tools() -> FakeTools:
    return FakeTools()


@pytest.fixture
def server(tools: FakeTools) -> Iterator[Running]:
    with running(FakeSettings(n_threads_http=1), tools=tools) as started:
        yield started


def test_the_tools_are_listed(server: Running) -> None:
    response = server.get("/tools")
    assert (response.text, response.headers["content-type"]) == ('[{"tool":"echo"}]', "application/json; charset=utf-8")


def test_a_call_gets_its_body_and_headers_and_gives_its_answer(server: Running, tools: FakeTools) -> None:
    posting = server.posting("/tools", "one")
    call = tools.next_call()
    assert call.headers[b"content-length"] == b"3"
    call.status = 400
    call.may_end.set()
    response = posting.response()
    assert (response.status_code, response.text) == (400, "echo one")
    assert call.closed.wait(PATIENCE_S)


def test_tools_that_run_keep_no_request_from_being_translated(server: Running, tools: FakeTools) -> None:
    postings = [server.posting("/tools", str(i)) for i in range(3)]
    calls = [tools.next_call() for _ in postings]
    assert server.post("/tokenize", data='{"content":"a"}').status_code == 200
    for call in calls:
        call.may_end.set()
    assert {posting.response().status_code for posting in postings} == {200}


def test_a_stream_is_sent_as_it_comes(server: Running, tools: FakeTools) -> None:
    posting = server.posting_stream('{"stream":true}', "/tools")
    call = tools.next_call()
    call.chunks.put((b"data: 1\n\n", True))
    response = posting.response()
    assert response.headers["content-type"] == "text/event-stream"
    lines = response.iter_lines(chunk_size=1)
    assert next(lines) == b"data: 1"
    call.chunks.put((b"data: 2\n\n", False))
    assert [line for line in lines if line] == [b"data: 2"]
    assert call.closed.wait(PATIENCE_S)
    assert all("MainThread" not in name and name != "http" for name in call.threads)


@pytest.mark.parametrize("body", ["{}", '{"stream":true}'])
def test_a_client_that_leaves_stops_its_tool(server: Running, tools: FakeTools, body: str) -> None:
    with server.raw_post("/tools", body):
        call = tools.next_call()
        assert not call.stopped.is_set()
    assert call.stopped.wait(PATIENCE_S)
    assert call.closed.wait(PATIENCE_S)


def test_the_end_of_the_server_stops_the_tools(server: Running, tools: FakeTools) -> None:
    posting = server.posting("/tools", "{}")
    call = tools.next_call()
    assert server.end() == 0
    assert call.closed.is_set()
    posting.response()


def test_tools_neither_wait_for_a_sleeping_model_nor_wake_it(tools: FakeTools) -> None:
    with running(FakeSettings(sleep_idle_s=1), tools=tools) as server:
        assert server.engine.fall_asleep()
        assert server.get("/tools").status_code == 200
        posting = server.posting("/tools", "one")
        tools.next_call().may_end.set()
        assert posting.response().status_code == 200
        assert server.engine.inbound.empty()


def test_without_tools_the_route_says_that_it_is_off(tools: FakeTools) -> None:
    with running() as server:
        for method in ("GET", "POST"):
            assert server.request(method, "/tools").status_code == 403
    with running(FakeSettings(api_keys=("key",)), tools=tools) as server:
        assert one_error(server.get("/tools"))[0] == 401
