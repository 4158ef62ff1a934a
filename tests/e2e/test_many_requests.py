"""More requests than slots, and clients that leave: everything ends, and nothing stays behind."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S, ServerProcess

N_REQUESTS = 64
N_CANCELS = 200
MAX_LOOKS = 20_000  # each is a request; far more than a healthy server needs


@pytest.fixture(scope="module")
def parking(start_ours: StartServer) -> Iterator[ServerProcess]:
    """A server that parks a chat after every third token."""
    with start_ours(LLAMA_SERVER_PREEMPT_EVERY="3") as server:
        yield server


class LeavingClient:
    """A raw connection with one completion on it, which is closed whenever the test likes."""

    def __init__(self, server: ServerProcess, prompt: str, *, is_streamed: bool) -> None:
        address = urlsplit(server.url)
        body = json.dumps({"prompt": prompt, "n_predict": 300, "ignore_eos": True, "stream": is_streamed})
        self.is_streamed = is_streamed
        self.has_begun = False
        self._socket = socket.create_connection((str(address.hostname), address.port or 0), PATIENCE_S)
        head = f"POST /completion HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall((head + body).encode())

    def read_some(self) -> None:
        """Wait for more of the response."""
        assert self._socket.recv(400), "the server ended the stream"
        self.has_begun = True

    def leave(self) -> None:
        self._socket.close()


def test_64_requests_at_once_on_4_slots_all_end(ours: ServerProcess) -> None:
    def complete(number: int) -> tuple[int, int]:
        body = {"prompt": f"Number {number}:", "n_predict": 6, "ignore_eos": True, "stream": False}
        answer = ours.post("/completion", body)
        return answer.status_code, answer.json()["tokens_predicted"]

    with ThreadPoolExecutor(N_REQUESTS) as threads:
        assert list(threads.map(complete, range(N_REQUESTS))) == [(200, 6)] * N_REQUESTS
    assert all_idle(ours)


def test_200_clients_that_leave_at_random_leave_every_slot_idle_and_no_memory_held(parking: ServerProcess) -> None:
    rng = random.Random(20261130)
    live: list[LeavingClient] = []
    n_begun = 0
    for number in range(N_CANCELS):
        live.append(LeavingClient(parking, f"Story {number}:", is_streamed=rng.random() < 0.7))
        oldest_stream = next((client for client in live if client.is_streamed), None)
        if oldest_stream is not None and rng.random() < 0.5:  # the oldest has a slot, or gets the next one
            free_slots_for(oldest_stream, live)
            oldest_stream.read_some()
        while len(live) > 8:
            leaver = live.pop(rng.randrange(len(live)))
            n_begun += leaver.has_begun
            leaver.leave()
    for client in live:
        n_begun += client.has_begun
        client.leave()
    look_until(lambda: all_idle(parking))
    assert n_begun > 20
    assert parking.metric("preemptions_total") > 0
    assert parking.metric("requests_cancelled_total") >= n_begun
    assert parking.metric("requests_failed_total") == 0
    assert parking.metric("requests_deferred") == 0


def test_after_all_that_the_same_server_still_answers(parking: ServerProcess) -> None:
    answer = parking.post("/completion", {"prompt": "1, 2, 3, 4, 5, 6,", "n_predict": 3, "temperature": 0})
    assert answer.json()["content"] == " 7,"


def test_a_hundred_clients_that_leave_in_line_cost_no_prompt_tokens_and_make_room_in_it(
    start_ours: StartServer,
) -> None:
    with start_ours("-np", "1", "--context-shift", "--max-queue", "100") as server:
        body = {"prompt": "Once", "n_predict": -1, "ignore_eos": True, "stream": True}
        with server.post("/completion", body, stream=True) as busy:
            lines = busy.iter_lines()  # kept: an iterator that is dropped closes the connection
            assert next(lines)
            n_before = server.metric("prompt_tokens_total")
            in_line = [LeavingClient(server, f"Story {number}:", is_streamed=number % 2 == 0) for number in range(100)]
            look_until(lambda: server.metric("requests_deferred") == 100)
            refused = server.post("/completion", {"prompt": "Twice", "n_predict": 1})
            for client in in_line:
                client.leave()
            look_until(lambda: server.metric("requests_deferred") == 0)
            assert server.metric("prompt_tokens_total") == n_before
        assert server.post("/completion", {"prompt": "Thrice", "n_predict": 1}).status_code == 200
        assert server.metric("requests_cancelled_total") == 101
    assert refused.status_code == 503
    assert refused.json()["error"]["type"] == "unavailable_error"
    assert 1 <= int(refused.headers["Retry-After"]) <= 60


def free_slots_for(client: LeavingClient, live: list[LeavingClient]) -> None:
    """Requests that are not streamed and older than this one hold slots that only their leaving frees."""
    for older in live[: live.index(client)]:
        older.leave()
        live.remove(older)


def all_idle(server: ServerProcess) -> bool:
    """Whether no slot has anything to do and no parked state is held."""
    is_busy = any(slot["is_processing"] for slot in server.slots())
    return not is_busy and server.metric("requests_processing") == 0 and server.metric("preempt_ram_bytes") == 0


def look_until(condition: Callable[[], bool]) -> None:
    """Look again and again, at most MAX_LOOKS times: the server learns of a client's leaving a little later."""
    assert any(condition() for _ in range(MAX_LOOKS)), "the server did not come to rest"
