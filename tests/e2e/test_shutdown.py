"""SIGTERM and SIGINT end the server in good order, idle or busy, with exit code 0."""

from __future__ import annotations

import json
import signal

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S
from tests.e2e.sse import sse_lines

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_an_idle_server_ends_with_0(start_ours: StartServer, number: signal.Signals) -> None:
    with start_ours() as server:
        server.signal(number)
        assert server.wait(PATIENCE_S) == 0
        assert "cleaning up before exit" in server.log()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_server_with_running_and_parked_requests_ends_with_0_and_tells_its_clients(
    start_ours: StartServer, number: signal.Signals
) -> None:
    body = {"prompt": "Once upon a time", "n_predict": 450, "ignore_eos": True, "stream": True}
    with start_ours(LLAMA_SERVER_PREEMPT_EVERY="3") as server:
        with (
            server.post("/completion", body, stream=True) as first,
            server.post("/completion", body, stream=True) as other,
        ):
            lines, other_lines = sse_lines(first), sse_lines(other)
            assert next(line for line in lines if line == ": preempted")
            assert next(other_lines)
            server.signal(number)
            assert "The server is stopping" in list(lines)[-1]
            assert "The server is stopping" in list(other_lines)[-1]
        assert server.wait(PATIENCE_S) == 0


def test_with_drain_seconds_running_requests_end_well_and_then_the_server(start_ours: StartServer) -> None:
    body = {"prompt": "Once upon a time", "n_predict": 100, "ignore_eos": True, "stream": True}
    with start_ours("--drain-seconds", "600", LLAMA_SERVER_PREEMPT_EVERY="30") as server:
        with server.post("/completion", body, stream=True) as response:
            lines = sse_lines(response)
            assert next(lines)
            server.signal(signal.SIGTERM)
            last = json.loads(list(lines)[-1].removeprefix("data: "))
        assert server.wait(PATIENCE_S) == 0
        assert "those that run have 600 seconds to end" in server.whole_log()
    assert last["stop"]
    assert last["tokens_predicted"] == 100
