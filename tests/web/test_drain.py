"""A server that is told to end and lets running requests end first."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.web.fakes import PATIENCE_S, FakeSettings, token
from tests.web.running import Running, one_error, running

LONG_S = 3600.0
MAX_LOOKS = 20_000  # each is a request; far more than a healthy server needs


@pytest.fixture
def server() -> Iterator[Running]:
    with running(FakeSettings(endpoint_metrics=True), drain_s=LONG_S) as started:
        yield started


def interrupt(server: Running) -> None:
    """And wait until it takes no more requests."""
    server.server.interrupt()
    assert any(server.get("/health").status_code == 503 for _ in range(MAX_LOOKS))


def test_a_server_without_requests_ends_at_once(server: Running) -> None:
    assert server.end() == 0
    assert server.engine.stopped.is_set()


def test_running_requests_go_on_and_new_ones_are_refused_until_the_last_has_ended(server: Running) -> None:
    plain = server.posting("/completion", "{}")
    (plain_id,) = server.engine.next_task_ids()
    stream = server.posting_stream('{"stream":true}')
    (stream_id,) = server.engine.next_task_ids()
    interrupt(server)
    for refused in (server.post("/completion", data="{}"), server.get("/health")):
        assert refused.headers["Retry-After"] == "1"
        message = "The server is about to end and takes no new requests"
        assert one_error(refused) == (503, "unavailable_error", message)
    assert [server.get(path).status_code for path in ("/slots", "/metrics", "/pool.json")] == [200, 200, 200]
    server.engine.finish(plain_id, b'{"answer":1}')
    assert plain.response().json() == {"answer": 1}
    server.engine.say(token(stream_id, b"1"))
    assert not server.engine.stopped.is_set()
    with stream.response() as response:
        server.engine.finish(stream_id, b"2")
        assert response.text == "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert server.wait() == 0


def test_a_client_that_leaves_does_not_hold_the_end_up(server: Running) -> None:
    connection = server.raw_post("/completion", "{}")
    server.engine.next_task_ids()
    interrupt(server)
    connection.close()
    assert server.wait() == 0


def test_a_stream_that_goes_on_without_its_client_is_waited_for(server: Running) -> None:
    connection = server.raw_post("/completion", '{"stream":true}', {"X-Conversation-Id": "kept"})
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(token(task_id, b"1"))
    received = b""
    while b"data: 1\n\n" not in received:
        received += connection.recv(65536)
    connection.close()
    interrupt(server)
    assert not server.engine.stopped.is_set()
    server.engine.finish(task_id, b"2")
    assert server.wait() == 0
    assert server.engine.inbound.empty()


def test_who_still_runs_when_the_time_is_over_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running(drain_s=0.001) as server:
        plain = server.posting("/completion", "{}")
        server.engine.next_task_ids()
        assert server.end() == 0
    assert one_error(plain.response()) == (503, "unavailable_error", "The server is stopping")
    assert "requests still run after 0.001 seconds (--drain-seconds): they end now" in caplog.messages


def test_a_second_interrupt_does_not_wait(server: Running) -> None:
    plain = server.posting("/completion", "{}")
    server.engine.next_task_ids()
    interrupt(server)
    assert server.end() == 0
    assert one_error(plain.response())[0] == 503


def test_an_engine_that_breaks_meanwhile_ends_the_server_with_code_1(server: Running) -> None:
    plain = server.posting("/completion", "{}")
    server.engine.next_task_ids()
    interrupt(server)
    server.engine.fail("the device is lost")
    assert server.wait() == 1
    assert one_error(plain.response())[0] == 503


def test_nothing_is_waited_for_while_the_model_loads() -> None:
    with running(is_loaded=False, drain_s=LONG_S) as server:
        assert server.end() == 0
        assert server.engine.stopped.wait(PATIENCE_S)
