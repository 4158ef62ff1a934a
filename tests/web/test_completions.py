"""Completions that are answered all at once."""

from __future__ import annotations

import pytest
from pyggml_server.errors import error_object
from pyggml_server.messages import Began, Cancelled, Failed, Notice
from pyggml_server.request_kind import RequestKind

from tests.web.fakes import PATIENCE_S, token
from tests.web.running import Running, one_error

CONTEXT_ERROR = error_object("the request exceeds the available context size", "exceed_context_size_error")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/completion", RequestKind.COMPLETION),
        ("/completions", RequestKind.COMPLETION),
        ("/v1/completions", RequestKind.OAI_COMPLETION),
        ("/chat/completions", RequestKind.OAI_CHAT),
        ("/v1/chat/completions", RequestKind.OAI_CHAT),
    ],
)
def test_each_path_is_translated_as_its_api(server: Running, path: str, kind: RequestKind) -> None:
    posting = server.posting(path, "{}")
    (task_id,) = server.engine.next_task_ids()
    server.engine.finish(task_id, b'{"content":"hello"}')
    response = posting.response()
    assert (response.status_code, response.text) == (200, '{"content":"hello"}')
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    request = server.engine.translator.requests.get(timeout=PATIENCE_S)
    assert request.kind == kind
    assert request.closed.wait(PATIENCE_S)


def test_results_are_joined_in_the_order_of_the_tasks_not_of_their_ends(server: Running) -> None:
    posting = server.posting("/completion", '{"n":3}')
    first, second, third = server.engine.next_task_ids(3)
    server.engine.finish(third, b'"c"')
    server.engine.finish(first, b'"a"')
    server.engine.finish(second, b'"b"')
    assert posting.response().json() == ["a", "b", "c"]


def test_messages_for_streams_do_not_disturb(server: Running) -> None:
    posting = server.posting("/completion", "{}")
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Began(task_id), token(task_id, b'"x"'), Notice(task_id, "preempted"))
    server.engine.finish(task_id, b'"done"')
    assert posting.response().json() == "done"


def test_one_failed_task_fails_the_request_and_cancels_the_others(server: Running) -> None:
    posting = server.posting("/completion", '{"n":3}')
    first, second, third = server.engine.next_task_ids(3)
    server.engine.finish(first)
    server.engine.say(Failed(second, *CONTEXT_ERROR))
    assert one_error(posting.response())[:2] == (400, "exceed_context_size_error")
    assert server.engine.next_cancelled_id() == third
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)
    assert server.engine.inbound.empty()


def test_a_task_that_the_engine_cancels_is_unavailable(server: Running) -> None:
    posting = server.posting("/completion", "{}")
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Cancelled(task_id))
    assert one_error(posting.response())[:2] == (503, "unavailable_error")


def test_a_refused_body_never_reaches_the_engine(server: Running) -> None:
    status, kind, _ = one_error(server.post("/v1/chat/completions", data="{ this is not json"))
    assert (status, kind) == (400, "invalid_request_error")
    assert server.engine.inbound.empty()


def test_a_result_that_cannot_be_formatted_is_a_server_error(server: Running) -> None:
    posting = server.posting("/completion", "{}")
    (task_id,) = server.engine.next_task_ids()
    server.engine.finish(task_id, b"broken")
    assert one_error(posting.response()) == (500, "server_error", "this payload is broken")


def test_messages_about_unknown_tasks_are_ignored(server: Running) -> None:
    server.engine.say(token(12345, b"x"), Cancelled(99))
    posting = server.posting("/completion", "{}")
    (task_id,) = server.engine.next_task_ids()
    server.engine.finish(task_id, b'"still here"')
    assert posting.response().json() == "still here"


def test_many_requests_at_once_each_get_their_own_result(server: Running) -> None:
    postings = {}
    for number in range(64):
        posting = server.posting("/completion", "{}")
        (task_id,) = server.engine.next_task_ids()
        postings[task_id] = (number, posting)
    for task_id in reversed(postings):
        server.engine.finish(task_id, str(postings[task_id][0]).encode())
    for number, posting in postings.values():
        assert posting.response().json() == number
