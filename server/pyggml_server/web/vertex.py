"""The predict route that Google's Vertex AI wants (AIP_MODE=PREDICTION): many requests of any kind in one body.

Each instance names one of our routes and is answered by it, in this process and side by side. Event loop thread.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Scope

from pyggml_server.errors import error_object
from pyggml_server.web.body import read_body
from pyggml_server.web.disconnect import while_connected
from pyggml_server.web.errors import json_response, json_text, refusal

MAX_INSTANCES = 128
FORMAT_KEY = "@requestFormat"


class VertexError(Exception):
    """A variable of Vertex cannot be obeyed; the message names it."""


@dataclass(frozen=True, slots=True)
class VertexRoutes:
    """What the variables ask for. An empty `health_path` means no route but /health."""

    predict_path: str
    health_path: str
    port: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> VertexRoutes | None:
        """None unless AIP_MODE is PREDICTION. Raises VertexError."""
        if environ.get("AIP_MODE") != "PREDICTION":
            return None
        port = environ.get("AIP_HTTP_PORT") or "8080"
        if not (port.isascii() and port.isdigit()):
            raise VertexError(f"AIP_HTTP_PORT={port} is not a port number")
        predict = _with_slash(environ.get("AIP_PREDICT_ROUTE") or "/predict")
        return cls(predict, _with_slash(environ.get("AIP_HEALTH_ROUTE", "")), int(port))


def routes_with_vertex(vertex: VertexRoutes, prefix: str, routes: list[BaseRoute]) -> list[BaseRoute]:
    """The routes, and before them the two for Vertex. Raises VertexError where the predict route is taken."""
    by_path: dict[str, Route] = {}
    for route in routes:
        if isinstance(route, Route):
            by_path.setdefault(route.path.removeprefix(prefix), route)
    if vertex.predict_path in by_path:
        raise VertexError(f"AIP_PREDICT_ROUTE={vertex.predict_path} conflicts with an existing llama-server route")
    own: list[BaseRoute] = [Route(prefix + vertex.predict_path, Predict(by_path), methods=["POST"])]
    if vertex.health_path and vertex.health_path not in by_path:
        own.append(Route(prefix + vertex.health_path, by_path["/health"].endpoint))
    return own + routes


class Predict:
    """The endpoint of the predict route."""

    def __init__(self, by_path: Mapping[str, Route]) -> None:
        self._by_path = by_path
        # paths with a version win: "chatCompletions" is /v1/chat/completions
        ordered = sorted(by_path, key=lambda path: not path.startswith("/v1/"))
        self._path_of_alias: dict[str, str] = {}
        for path in ordered:
            self._path_of_alias.setdefault(alias(path), path)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one body. Instances that are wrong are answered in their place and do no harm to the others."""
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            data = json.loads(await read_body(request))
        except ValueError as error:
            return refusal(str(error), "invalid_request_error")
        if not isinstance(data, dict):
            return refusal("request body must be a JSON object", "invalid_request_error")
        instances = data.get("instances")
        if not isinstance(instances, list):
            return refusal("request body must include an array field named instances", "invalid_request_error")
        if len(instances) > MAX_INSTANCES:
            return refusal(f"instances array exceeds maximum size of {MAX_INSTANCES}", "invalid_request_error")
        predictions = await while_connected(request.receive, self._predict_all(request, instances))
        return json_response(json_text({"predictions": predictions}).encode())

    async def _predict_all(self, request: Request, instances: list[Any]) -> list[Any]:
        return await asyncio.gather(*(self._predict(request, instance) for instance in instances))

    async def _predict(self, request: Request, instance: Any) -> Any:
        if not isinstance(instance, dict):
            return _error("each instance must be a JSON object")
        kind = instance.get(FORMAT_KEY)
        if not isinstance(kind, str):
            return _error(f"each instance must include a string {FORMAT_KEY}")
        route = self._by_path.get(self._path_of_alias.get(kind, kind))
        if route is None:
            return _error(f"no handler registered for {FORMAT_KEY}: {kind}")
        fields = {name: value for name, value in instance.items() if name != FORMAT_KEY}
        if "stream" in fields:
            fields["stream"] = False  # one body cannot carry streams
        try:
            return await _ask(route, request.scope, json.dumps(fields).encode())
        except Exception as error:
            return _error(str(error) or type(error).__name__, "server_error")


def alias(path: str) -> str:
    """The name of a path in camel case: /v1/chat/completions is chatCompletions."""
    words = re.split(r"[/_-]", path.removeprefix("/v1").lstrip("/").split("{")[0])
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


async def _ask(route: Route, outer: Scope, body: bytes) -> Any:
    """The answer of one of our routes to a body, parsed; what is no JSON as text, nothing as None."""
    method = "GET" if "GET" in (route.methods or ()) else "POST"
    scope = {**outer, "method": method, "path": route.path, "raw_path": route.path.encode(), "query_string": b""}
    scope["path_params"] = {}
    to_read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    content, content_type = bytearray(), b""

    async def receive() -> Message:
        if to_read:
            return to_read.pop()
        await asyncio.Event().wait()  # the client leaves the whole body or none of it
        raise AssertionError("an event that nobody sets")

    async def send(message: Message) -> None:
        nonlocal content_type
        if message["type"] == "http.response.start":
            content_type = dict(message.get("headers", [])).get(b"content-type", b"")
        content.extend(message.get("body", b""))

    app: ASGIApp = route.app
    await app(scope, receive, send)
    if content_type.startswith(b"text/event-stream"):
        return _error("predict route does not support streaming responses")
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")


def _error(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": json.loads(error_object(message, kind)[1])}


def _with_slash(path: str) -> str:
    return path if not path or path.startswith("/") else "/" + path
