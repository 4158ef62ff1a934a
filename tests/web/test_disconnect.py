"""A client that leaves, at any moment, cancels its tasks and frees its request."""

from __future__ import annotations

import logging

import pytest
from pyggml_server.messages import Began

from tests.web.fakes import PATIENCE_S, token
from tests.web.running import Running


def assert_request_is_freed(server: Running) -> None:
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)
    assert server.engine.inbound.empty()


@pytest.mark.parametrize("body", ['{"stream":false}', '{"stream":true}'])
def test_leaving_before_the_first_message_cancels_the_task(server: Running, body: str) -> None:
    connection = server.raw_post("/completion", body)
    (task_id,) = server.engine.next_task_ids()
    connection.close()
    assert server.engine.next_cancelled_id() == task_id
    assert_request_is_freed(server)


@pytest.mark.parametrize("body", ['{"stream":false}', '{"stream":true}'])
def test_leaving_in_the_middle_cancels_the_task(server: Running, body: str) -> None:
    connection = server.raw_post("/completion", body)
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id), token(task_id, b"1"))
    connection.close()
    assert server.engine.next_cancelled_id() == task_id
    assert_request_is_freed(server)


def test_leaving_in_the_middle_of_a_stream_that_was_read_cancels_the_task(server: Running) -> None:
    with server.raw_post("/completion", '{"stream":true}') as connection:
        (task_id,) = server.engine.next_task_ids()
        server.engine.say(token(task_id, b"1"))
        received = b""
        while b"data: 1\n\n" not in received:
            received += connection.recv(65536)
    assert server.engine.next_cancelled_id() == task_id
    assert_request_is_freed(server)


@pytest.mark.parametrize("path", ["/completion", "/tokenize"])
def test_leaving_while_the_body_is_sent_is_not_an_error(
    server: Running, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server.raw_connection() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head.encode())
        # the server asks for the body: it waits for it now
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{")
    # the server has seen the end of every connection when it has ended
    assert server.end() == 0
    assert server.engine.inbound.empty()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_leaving_cancels_only_the_tasks_that_have_not_ended(server: Running) -> None:
    connection = server.raw_post("/completion", '{"n":3}')
    first, second, third = server.engine.next_task_ids(3)
    server.engine.finish(second)
    # the end of `second` is on the event loop before the client leaves
    assert server.get("/health").status_code == 200
    connection.close()
    assert [server.engine.next_cancelled_id(), server.engine.next_cancelled_id()] == [first, third]
    assert_request_is_freed(server)


def test_leaving_during_translation_frees_the_request_after_it(server: Running) -> None:
    translator = server.engine.translator
    translator.may_translate.clear()
    connection = server.raw_post("/completion", "{}")
    assert translator.is_translating.wait(PATIENCE_S)
    connection.close()
    while not translator.abandoned.flag[0]:  # native code looks at it and ends
        server.get("/health")
    translator.may_translate.set()
    request = translator.requests.get(timeout=PATIENCE_S)
    assert request.closed.wait(PATIENCE_S)


def test_others_are_served_on_while_one_leaves(server: Running) -> None:
    staying = server.posting("/completion", "{}")
    (stays,) = server.engine.next_task_ids()
    connection = server.raw_post("/completion", "{}")
    (leaves,) = server.engine.next_task_ids()
    connection.close()
    assert server.engine.next_cancelled_id() == leaves
    server.engine.finish(stays, b'"stayed"')
    assert staying.response().json() == "stayed"
