"""Event streams as a client sees them: JSON events, their names, other data, and comments, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.e2e.program import ServerProcess


@dataclass
class EventStream:
    """What one stream brought: the events with a JSON object, the names that some APIs give them, `[DONE]`, the
    comments."""

    events: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    is_done: bool = False

    @property
    def text(self) -> str:
        """The text of a chat or a completion, joined."""
        return "".join(_text(event) for event in self.events)

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that ended the stream, or None."""
        error: dict[str, Any] | None = self.events[-1].get("error") if self.events else None
        return error


def read_stream(response: requests.Response) -> EventStream:
    """Everything up to the end of the stream."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    stream = EventStream()
    for line in sse_lines(response):
        if line.startswith(":"):
            stream.comments.append(line[1:].strip())
        elif line.startswith("event: "):
            stream.names.append(line.removeprefix("event: "))
        elif line == "data: [DONE]":
            stream.is_done = True
        else:
            event = json.loads(line.removeprefix("data: "))
            # llama-server announces the second of two prompts with null; pyggml-server leaves that out
            if event is not None:
                stream.events.append(event)
    return stream


def sse_lines(response: requests.Response) -> Iterator[str]:
    """The lines that are not empty, as they arrive."""
    lines: Iterable[bytes] = response.iter_lines(chunk_size=1)
    return (line.decode() for line in lines if line)


def post_stream(server: ServerProcess, path: str, body: dict[str, Any]) -> EventStream:
    """One streamed request from its begin to its end."""
    with server.post(path, {**body, "stream": True}, stream=True) as response:
        return read_stream(response)


def _text(event: dict[str, Any]) -> str:
    if "content" in event:
        return str(event["content"])
    choices = event.get("choices") or [{}]
    return str(choices[0].get("text") or choices[0].get("delta", {}).get("content") or "")
