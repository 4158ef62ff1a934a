"""What is of one replica, asked of any: `/pool` lists all, and `?replica=NAME` names one. Event loop thread.

Ray's proxy hands a request to some replica. That one asks the others where the request is not for itself.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyggml_server.web.errors import json_response, json_text, refusal
from pyggml_server.web.gate import POOL_PATH
from pyggml_server.web.pool_files import replicas_page

LIST_PATH = "/replicas.json"
NUMBERS_PATH = "/pool.json"
#: What another replica may be asked for.
FORWARDED = (NUMBERS_PATH, "/slots", "/metrics", "/props")
KEY_HEADERS = frozenset({b"authorization", b"x-api-key"})
#: Those of an answer that are its own, and not of the way to it.
KEPT_HEADERS = frozenset({b"content-type", b"process-start-time-unix"})


@dataclass(frozen=True, slots=True)
class Question:
    """A GET without a body. `headers` has the API key, if there is one."""

    path: str
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the replica `name`, a process of some machine."""

    name: str
    process_id: int
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class AllReplicas:
    """The server's application of one replica, and what it tells of the others."""

    def __init__(
        self, application: ASGIApp, name: str, prefix: str, broadcast: Callable[[Question], Awaitable[list[Answer]]]
    ) -> None:
        """name: of this replica. prefix: of --api-prefix. broadcast: asks every replica, this one too; raises
        TimeoutError."""
        self.application = application
        self.name = name
        self._prefix = prefix
        self._broadcast = broadcast
        self._page = replicas_page()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        is_get = scope["type"] == "http" and scope["method"] == "GET"
        try:
            response = await self._answer(scope) if is_get else None
        except TimeoutError:
            response = refusal("a replica did not answer in time: ask again", "unavailable_error")
        await (response or self.application)(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response | None:
        """What is of other replicas, or of all; None for the rest."""
        path: str = scope["path"]
        named = parse_qs(scope["query_string"].decode("latin-1")).get("replica", [""])[0]
        if path == self._prefix + LIST_PATH:
            return await self._list(scope)
        if path == self._prefix + POOL_PATH and not named:
            return Response(self._page.html, headers=self._page.headers)
        is_forwarded = path in [self._prefix + known for known in FORWARDED]
        if is_forwarded and named and named != self.name:
            return await self._of_another(named, scope)
        return None

    async def _list(self, scope: Scope) -> Response:
        answers = await self._broadcast(_question(scope, self._prefix + NUMBERS_PATH))
        told = [answer for answer in answers if answer.status == 200]
        if answers and not told:  # no key, or --no-slots: every replica says the same
            return _as_response(answers[0])
        told.sort(key=lambda answer: answer.name)
        return json_response(json_text({"replicas": [_summary(answer) for answer in told]}).encode())

    async def _of_another(self, name: str, scope: Scope) -> Response:
        for answer in await self._broadcast(_question(scope, scope["path"])):
            if answer.name == name:
                return _as_response(answer)
        return refusal(f"no replica is called {name}: {LIST_PATH} has the names", "not_found_error")


async def ask(application: ASGIApp, question: Question) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
    """Status, headers and body that the application answers with."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": question.path,
        "raw_path": question.path.encode(),
        "root_path": "",
        "query_string": question.query,
        "headers": list(question.headers),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await application(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers = [(name.lower(), value) for name, value in sent[0]["headers"]]
    return sent[0]["status"], tuple(header for header in headers if header[0] in KEPT_HEADERS), body


def _question(scope: Scope, path: str) -> Question:
    headers = tuple((name, value) for name, value in scope["headers"] if name in KEY_HEADERS)
    return Question(path, scope["query_string"], headers)


def _as_response(answer: Answer) -> Response:
    headers = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
    return Response(answer.body, answer.status, headers)


def _summary(answer: Answer) -> dict[str, object]:
    numbers = json.loads(answer.body)
    slots = numbers["slots"]
    return {
        "id": answer.name,
        "process_id": answer.process_id,
        "pool": numbers["pool"],
        "n_slots": len(slots),
        "n_running": sum(slot["id_task"] is not None for slot in slots),
        "n_parked": sum(slot["is_preempted"] for slot in slots),
    }
