"""A client that does not read: the engine is not held up, and what waits for the client is bounded."""

from __future__ import annotations

from pyggml_server.web.exchange import MAX_WAITING_BYTES

from tests.web.fakes import PATIENCE_S, FakeSettings, token
from tests.web.running import Running, running

PAYLOAD = b"x" * (1024 * 1024)


def test_a_client_that_never_reads_is_cancelled_when_too_much_waits(server: Running) -> None:
    with server.raw_post("/completion", '{"stream":true}'):
        (task_id,) = server.engine.next_task_ids()
        # sockets and buffers take some of it, the exchange at most its limit
        n_payloads = 0
        while server.engine.inbound.empty():
            server.engine.say(token(task_id, PAYLOAD))
            # the batch before this answer has been routed
            assert server.get("/health").status_code == 200
            n_payloads += 1
            assert n_payloads < 10 * MAX_WAITING_BYTES / len(PAYLOAD), "nothing bounds what waits"
        assert server.engine.next_cancelled_id() == task_id
    assert server.engine.translator.requests.get(timeout=PATIENCE_S).closed.wait(PATIENCE_S)


def test_a_client_that_takes_no_data_for_the_timeout_is_cancelled_before_too_much_waits() -> None:
    with running(FakeSettings(timeout_write_s=1)) as server, server.raw_post("/completion", '{"stream":true}'):
        (task_id,) = server.engine.next_task_ids()
        for _ in range(MAX_WAITING_BYTES // len(PAYLOAD) - 2):
            server.engine.say(token(task_id, PAYLOAD))
            assert server.get("/health").status_code == 200
        assert server.engine.next_cancelled_id() == task_id
