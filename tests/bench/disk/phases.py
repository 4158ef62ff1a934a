"""The two servers of this measurement, and the chat that is parked on them. Standard library only."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.bench.stall.servers import running
from tests.server_process import ServerProcess

TIMEOUT_S = 300.0
POLL_S = 0.01
MIB = 1 << 20
N_FIRST = 8  # tokens that the chat has said when it is parked first
N_SPARE_CELLS = 256  # of each chat: for what it says meanwhile
MEASURED = {
    "from_memory_ms": "from host memory to the next token",
    "from_disk_ms": "from the file to the next token",
    "computed_ms": "computed, to the next token",
    "written_ms": "written to the file",
    "read_ms": "read from the file (a part of the second line)",
}


@dataclass(frozen=True)
class Load:
    """A chat of `n_cells`, parked `n_rounds` times in each way."""

    model: str
    n_cells: int
    n_rounds: int
    folder: str
    server_flags: tuple[str, ...]

    def argv(self, program: Sequence[str], *more: str) -> list[str]:
        size = ("-c", str(2 * (self.n_cells + N_SPARE_CELLS)), "-np", "2", "--kv-unified", "--cache-ram", "0")
        where = ("--port", "0", "--host", "127.0.0.1", "--slots")
        return [*program, "-m", self.model, *size, *where, *self.server_flags, *more]

    def prompt(self, first: int) -> list[int]:
        return [first, *(1000 + i % 500 for i in range(1, self.n_cells - N_FIRST))]


def measure(program: Sequence[str], load: Load) -> dict[str, Any]:
    """Milliseconds of each round, and the state's size. Raises RuntimeError for a chat that fails."""
    with running(load.argv(program, "--preempt-disk", "0"), {}) as server:
        told = in_memory(server, load)
        told["computed_ms"] = [computed_ms(server, load) for _ in range(load.n_rounds)]
    ram_mib = -(-told["state_bytes"] * 3 // (2 * MIB))  # one state, and no second one
    disk_mib = -(-told["state_bytes"] * 2 // MIB)
    limits = ("--preempt-ram", str(ram_mib), "--preempt-disk", str(disk_mib), "--disk-path", load.folder)
    with running(load.argv(program, *limits), {}) as server:
        return {**told, **on_disk(server, load)}


def in_memory(server: ServerProcess, load: Load) -> dict[str, Any]:
    chat = Chat(server, load.prompt(1000), 0)
    chat.wait_for_tokens(N_FIRST)
    times_ms, slot = [], {}
    for _ in range(load.n_rounds):
        slot = park(server)
        times_ms.append(called_back_ms(server, chat))
    chat.leave()
    return {"n_cells": slot["n_prompt_tokens"], "state_bytes": slot["parked_bytes"], "from_memory_ms": times_ms}


def on_disk(server: ServerProcess, load: Load) -> dict[str, list[float]]:
    """Another chat generates until the parked one's state had to make room for its own, and then leaves."""
    chat = Chat(server, load.prompt(1000), 0)
    chat.wait_for_tokens(N_FIRST)
    times_ms = []
    for _ in range(load.n_rounds):
        other = Chat(server, load.prompt(1001), 1)
        other.wait_for_tokens(1)
        park(server)
        wait_until(lambda: bool(slots(server)[0]["is_on_disk"]), "the state went to no file")
        other.leave()
        wait_until(lambda: not slots(server)[1]["is_processing"], "the other chat did not end")
        times_ms.append(called_back_ms(server, chat))
    chat.leave()
    read_ms = said_ms(server, "its state is back in host memory after")
    if len(read_ms) != load.n_rounds:
        raise RuntimeError(f"{len(read_ms)} states were read from files, not {load.n_rounds}:\n{server.log()}")
    return {"from_disk_ms": times_ms, "written_ms": said_ms(server, "its state is in a file after"), "read_ms": read_ms}


def computed_ms(server: ServerProcess, load: Load) -> float:
    body = {"prompt": load.prompt(1000), "n_predict": 1, "ignore_eos": True, "cache_prompt": False}
    begin_s = time.monotonic()
    post(server, "/completion", body)
    return round(1e3 * (time.monotonic() - begin_s), 3)


def park(server: ServerProcess) -> dict[str, Any]:
    """Slot 0, as it is then."""
    post(server, "/slots/0?action=park", {})
    wait_until(lambda: slots(server)[0]["state"] == "preempted", "the chat was not parked")
    return slots(server)[0]


def called_back_ms(server: ServerProcess, chat: Chat) -> float:
    n_tokens = len(chat.tokens_s)
    begin_s = time.monotonic()
    post(server, "/slots/0?action=unpark", {})
    chat.wait_for_tokens(n_tokens + 1)
    return round(1e3 * (chat.tokens_s[n_tokens] - begin_s), 3)


def said_ms(server: ServerProcess, what: str) -> list[float]:
    """What the server's log says that it took, each time."""
    return [float(found[1]) for line in server.lines if (found := re.search(rf"{what} ([\d.]+) ms", line))]


def wait_until(holds: Callable[[], bool], else_say: str) -> None:
    """Raises RuntimeError."""
    end_s = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeError(else_say)
        time.sleep(POLL_S)


def slots(server: ServerProcess) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/slots", timeout=TIMEOUT_S) as response:
        found: list[dict[str, Any]] = json.load(response)
    return found


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> None:
    """Raises urllib.error.URLError for an answer that is an error."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        response.read()


class Chat(threading.Thread):
    """One that goes on until it is left. `tokens_s`: when each of its tokens arrived."""

    def __init__(self, server: ServerProcess, prompt: list[int], slot_id: int) -> None:
        super().__init__(daemon=True)
        self.tokens_s: list[float] = []
        self._changed = threading.Condition()
        self._error: str | None = None
        self._connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=TIMEOUT_S)
        body = {"prompt": prompt, "id_slot": slot_id, "n_predict": -1, "ignore_eos": True, "cache_prompt": False}
        body |= {"stream": True, "return_tokens": True, "temperature": 0}
        self._connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        assert self._connection.sock is not None
        self._socket: socket.socket = self._connection.sock
        self.start()

    def wait_for_tokens(self, n_tokens: int) -> None:
        """Raises RuntimeError if it ended before."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or len(self.tokens_s) >= n_tokens, TIMEOUT_S)
        if len(self.tokens_s) < n_tokens:
            raise RuntimeError(f"the chat has {len(self.tokens_s)} of {n_tokens} tokens: {self._error}")

    def leave(self) -> None:
        """As a client that goes away."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._connection.close()

    def run(self) -> None:
        error = "it ended"
        try:
            for line in self._connection.getresponse():
                self._take(line, time.monotonic())
        except (OSError, http.client.HTTPException, ValueError) as caught:
            error = str(caught) or type(caught).__name__
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _take(self, line: bytes, now_s: float) -> None:
        if line.startswith(b"data: "):
            n_tokens = len(json.loads(line[6:]).get("tokens", ()))
            with self._changed:
                self.tokens_s += [now_s] * n_tokens
                self._changed.notify_all()
