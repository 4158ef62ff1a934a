"""What Ray's HTTP proxy does more for our server: sessions by conversation, and an end for streams whose replica died.

Runs in Ray's proxy processes, which `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` leads here. Imports nothing of Ray.
"""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyggml_server.errors import error_object
from pyggml_server.web.errors import error_response, json_text

SESSION_HEADER = b"x-session-id"  # of Ray
CONVERSATION_HEADER = b"x-conversation-id"  # of the chat page
RETRY_AFTER_S = 1
STATUS_OF_RAY = (429, 503)
GONE_MESSAGE = "The replica that answered is gone. Send the request again: another replica takes it."
BUSY_MESSAGE = "No replica takes the request now. Send it again."


def middlewares() -> list[Middleware]:
    """For Ray's proxy."""
    return [Middleware(ReplicaEnds)]


class ReplicaEnds:
    """Around the proxy: whatever becomes of a replica, its response has an end that a client understands."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send)
        await self._app(with_session(scope), receive, response.send)
        await response.end(scope, receive)


class _Response:
    """How far one response has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_started = False
        self._is_over = False
        self._is_stream = False
        self._is_of_ray = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            content_type = _header(message["headers"], b"content-type")
            self._is_of_ray = message["status"] in STATUS_OF_RAY and content_type.startswith(b"text/plain")
            if self._is_of_ray:
                return
            self._has_started = True
            self._is_stream = content_type.startswith(b"text/event-stream")
        elif self._is_of_ray:
            return
        elif not message.get("more_body", False):
            self._is_over = True
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        """Say what is missing. A whole body that broke off is left so: the client sees that it is short."""
        if self._is_over:
            return
        if not self._has_started:
            message = BUSY_MESSAGE if self._is_of_ray else GONE_MESSAGE
            response = error_response(*error_object(message, "unavailable_error"), RETRY_AFTER_S)
            await response(scope, receive, self._send)
        elif self._is_stream:
            body = stream_error(scope["path"], GONE_MESSAGE)
            await self._send({"type": "http.response.body", "body": body, "more_body": False})


def with_session(scope: Scope) -> Scope:
    """The request with Ray's header for its session, where it names its conversation in our way only."""
    headers = scope["headers"]
    if _header(headers, SESSION_HEADER):
        return scope
    queried = parse_qs(scope["query_string"].decode("latin-1")).get("conv_id", [""])[0].encode("latin-1", "replace")
    conversation = _header(headers, CONVERSATION_HEADER) or queried
    if not conversation.isascii() or not conversation:
        return scope
    return {**scope, "headers": [*headers, (SESSION_HEADER, conversation)]}


def stream_error(path: str, message: str) -> bytes:
    """The event that ends a stream, in the form of the path's API. Begins with an empty line: what came last may be
    the half of an event."""
    _, error = error_object(message, "unavailable_error")
    if path.endswith("/messages"):
        event: dict[str, object] = {"type": "error", "error": {"type": "api_error", "message": message}}
    elif path.endswith("/responses"):
        event = {"type": "error", "code": "unavailable_error", "message": message, "param": None}
    else:
        return b'\n\ndata: {"error":' + error + b"}\n\n"
    return f"\n\nevent: error\ndata: {json_text(event)}\n\n".encode()


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if key.lower() == name), b"")
