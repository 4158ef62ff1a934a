"""While the model is freed: who looks is answered, who needs it waits for it, and nobody is caught inside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.fakes import FakeSettings
from tests.web.running import Running, one_error, running


@pytest.fixture
def server() -> Iterator[Running]:
    with running(FakeSettings(sleep_idle_s=1, endpoint_metrics=True)) as started:
        yield started


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/health", '{"status":"ok"}'),
        ("/props", '{"is_sleeping":true}'),
        ("/models", '{"asleep":"list"}'),
        ("/v1/models", '{"asleep":"list"}'),
        ("/metrics", None),
        ("/", None),
        ("/pool", None),
        ("/pool.json", None),
    ],
)
def test_who_only_looks_wakes_nobody(server: Running, path: str, body: str | None) -> None:
    assert server.engine.fall_asleep()
    response = server.get(path)
    assert response.status_code == 200
    assert body in (None, response.text)
    assert server.engine.inbound.empty()


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens", "/props"])
def test_who_needs_the_model_has_it_loaded(server: Running, path: str) -> None:
    assert server.engine.fall_asleep()
    posting = server.posting(path, '{"content":"hi"}')
    server.engine.next_wake()
    server.engine.wake_up()
    assert posting.response().status_code in (200, 501)
    assert server.get("/props").text == '{"total_slots":4}'


def test_many_can_wait_for_it(server: Running) -> None:
    assert server.engine.fall_asleep()
    postings = [server.posting("/tokenize", '{"content":"hi"}') for _ in range(3)]
    for _ in postings:
        server.engine.next_wake()
    server.engine.wake_up()
    assert [posting.response().status_code for posting in postings] == [200, 200, 200]


def test_a_completion_that_runs_keeps_the_model(server: Running) -> None:
    posting = server.posting("/completion", "{}")
    (task_id,) = server.engine.next_task_ids()
    assert not server.engine.fall_asleep()
    server.engine.finish(task_id)
    assert posting.response().status_code == 200


def test_a_stream_without_its_client_keeps_the_model(server: Running) -> None:
    posting = server.posting_stream('{"stream":true}', headers={"X-Conversation-Id": "a"})
    (task_id,) = server.engine.next_task_ids()
    server.engine.say_tokens(task_id, b"1")
    posting.response().close()
    assert not server.engine.fall_asleep()
    server.engine.finish(task_id)
    assert server.get("/v1/stream?conv_id=a").text.endswith("data: [DONE]\n\n")


def test_who_waits_for_it_is_told_when_the_server_stops(server: Running) -> None:
    assert server.engine.fall_asleep()
    posting = server.posting("/tokenize", '{"content":"hi"}')
    server.engine.next_wake()
    server.end()
    assert one_error(posting.response()) == (503, "unavailable_error", "The server is stopping")
