"""Chats that stream from one server, all on one thread, and when their tokens arrived. Standard library only.

One thread and no JSON for each token: what measures runs on the machine that is measured.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

SILENCE_TIMEOUT_S = 300.0
# A string inside the JSON of an event has its quotes escaped, so it cannot look like the beginning of one.
EVENT = b'data: {"'


@dataclass
class Stream:
    """One chat. Times in seconds of one clock; the last event, which brings no token, is not in `events_s`."""

    body: dict[str, Any]
    sent_s: float = 0.0
    events_s: list[float] = field(default_factory=list)
    n_tokens: int = 0
    last: dict[str, Any] = field(default_factory=dict)


def run(url: str, bodies: Sequence[dict[str, Any]], have_begun: threading.Event | None = None) -> list[Stream]:
    """Send all requests at once and read every answer to its end. Raises RuntimeError for one that does not end well.

    have_begun  is set once each has its first token, and at the end in any case.
    """
    try:
        return _run(url, bodies, have_begun or threading.Event())
    finally:
        if have_begun is not None:
            have_begun.set()


def _run(url: str, bodies: Sequence[dict[str, Any]], have_begun: threading.Event) -> list[Stream]:
    streams = [Stream(body) for body in bodies]
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            reader = _Reader(url, stream)
            selector.register(reader.socket, selectors.EVENT_READ, reader)
        while selector.get_map():
            ready = selector.select(SILENCE_TIMEOUT_S)
            if not ready:
                raise RuntimeError(f"{url} has been silent for {SILENCE_TIMEOUT_S} s")
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
                    key.data.end()
            if not have_begun.is_set() and all(stream.events_s for stream in streams):
                have_begun.set()
    return streams


class _Reader:
    """The connection of one stream."""

    def __init__(self, url: str, stream: Stream) -> None:
        address = urlsplit(url)
        self._stream = stream
        self._tail = b""
        self.socket = socket.create_connection((address.hostname or "", address.port or 80))
        body = json.dumps({**stream.body, "stream": True}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        stream.sent_s = time.monotonic()
        self.socket.sendall(head.encode() + body)

    def read(self) -> bool:
        """Take what has arrived. False at the end."""
        chunk = self.socket.recv(1 << 16)
        if not chunk:
            return False
        seen = self._tail + chunk
        last = seen.rfind(EVENT)
        before = self._tail.count(EVENT)  # the end of the last chunk is kept from its last event on
        self._stream.events_s += [time.monotonic()] * (seen.count(EVENT) - before)
        self._tail = seen[last:] if last >= 0 else seen[-len(EVENT) + 1 :]
        return True

    def end(self) -> None:
        """Read the last event. Raises RuntimeError if it is none."""
        self.socket.close()
        text = self._tail.partition(b"\n\n")[0].removeprefix(b"data: ")
        try:
            self._stream.last = json.loads(text)
        except ValueError:
            raise RuntimeError(f"the server ended a stream with {self._tail[-300:]!r}") from None
        if not self._stream.last.get("stop"):
            raise RuntimeError(f"the server ended a stream with {text.decode()}")
        self._stream.n_tokens = int(self._stream.last["tokens_predicted"])
        self._stream.events_s.pop()


def tokens_per_s(streams: Sequence[Stream]) -> float:
    """Of all chats together, from the first event of any to the last of any."""
    first_s = min(stream.events_s[0] for stream in streams)
    last_s = max(stream.events_s[-1] for stream in streams)
    return sum(stream.n_tokens for stream in streams) / (last_s - first_s)


def gaps_s(streams: Sequence[Stream]) -> list[float]:
    """Between two events of one chat in a row, of all chats."""
    return [after - before for stream in streams for before, after in pairwise(stream.events_s)]


def first_tokens_s(streams: Sequence[Stream]) -> list[float]:
    """From each request to its first event."""
    return [stream.events_s[0] - stream.sent_s for stream in streams]
