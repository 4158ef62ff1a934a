"""Chats against a running server: each on a thread, each token with the time at which it arrived."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.bench.stall.gaps import Arrivals
from tests.server_process import ServerProcess

SILENCE_TIMEOUT_S = 300.0
# A token that ends inside a character brings no event: two steps would look like one long gap. Chats say only these.
PLAIN_WORDS = "the of and to in is you that he was for on are with as they be at one have this from or had by"
SURELY = 100.0  # what is added to the logit of each of their tokens


def run_chats(server: ServerProcess, n_chats: int, n_prompt: int, n_tokens: int, n_apart: int) -> list[Arrivals]:
    """Each chat starts when the one before it has `n_apart` tokens, so that forced parks do not fall together."""
    chats = [Chat(server, i, n_prompt, n_tokens) for i in range(n_chats)]
    for chat in chats:
        chat.start()
        chat.wait_for_tokens(n_apart)
    for chat in chats:
        chat.join()
    for chat in chats:
        if chat.error is not None:
            chat.arrivals.error = f"chat {chat.number} did not end well: {chat.error}"
    return [chat.arrivals for chat in chats]


def check_ended_well(chats: Sequence[Arrivals]) -> None:
    """Raises RuntimeError for the first chat that did not come to its end."""
    for chat in chats:
        if chat.error is not None:
            raise RuntimeError(chat.error)


class Chat(threading.Thread):
    """One chat, with a prompt of its own. `sent_s`: when its request went out; `n_cached`: what its prompt found."""

    def __init__(
        self,
        server: ServerProcess,
        number: int,
        n_prompt: int,
        n_tokens: int,
        *,
        caches_prompt: bool = False,
        prompt: str = "",
    ) -> None:
        """`prompt` stands in place of `n_prompt` tokens."""
        super().__init__(name=f"chat {number}", daemon=True)
        self.number = number
        self.arrivals = Arrivals()
        self.error: str | None = None
        self.sent_s = 0.0
        self.n_cached = 0
        self._caches_prompt = caches_prompt
        self._server = server
        self._prompt = prompt or [1000 + 7 * number + i % 5 for i in range(n_prompt)]
        self._n_tokens = n_tokens
        self._changed = threading.Condition()
        self._has_ended = False
        self._n_predicted = 0

    def wait_for_tokens(self, n_tokens: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or len(self.arrivals.tokens_s) >= n_tokens)

    def run(self) -> None:
        try:
            self._follow()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = str(error) or type(error).__name__
        # Not by what arrived: a token that ends inside a character brings no event of its own.
        if self.error is None and self._n_predicted < self._n_tokens:
            self.error = f"it has {self._n_predicted} of {self._n_tokens} tokens"
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _follow(self) -> None:
        body: dict[str, Any] = {
            "prompt": self._prompt,
            "n_predict": self._n_tokens,
            "seed": self.number,
            "ignore_eos": True,
            "cache_prompt": self._caches_prompt,
            "stream": True,
            "return_tokens": True,
        }
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=SILENCE_TIMEOUT_S)
        words = json.loads(_post(connection, "/tokenize", {"content": PLAIN_WORDS}).read())["tokens"]
        body["logit_bias"] = [[token, SURELY] for token in set(words)]
        self.sent_s = time.monotonic()
        response = _post(connection, "/completion", body)
        if response.status != 200:
            self.error = response.read().decode()
            return
        for line in response:
            self._take(line, time.monotonic())
        connection.close()

    def _take(self, line: bytes, now_s: float) -> None:
        if line.startswith(b": preempted"):
            self.arrivals.preempted_s.append(now_s)
        elif line.startswith(b": resumed"):
            self.arrivals.resumed_s.append(now_s)
        elif line.startswith(b"error: "):
            self.error = line.decode()
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                self.error = str(event["error"])
            if event.get("stop", False):
                self._n_predicted = event.get("tokens_predicted", 0)
                self.n_cached = event.get("timings", {}).get("cache_n", 0)
                return
            with self._changed:
                self.arrivals.tokens_s += [now_s] * len(event.get("tokens", ()))
                self._changed.notify_all()


def _post(connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> http.client.HTTPResponse:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()
