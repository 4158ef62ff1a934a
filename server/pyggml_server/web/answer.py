"""The two ways to answer a completion: all at once, or as a stream of events. Event loop thread.

Reads the exchange and writes to the client; who opens and closes both is `completions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pyggml_server.errors import error_object
from pyggml_server.messages import Cancelled, Failed, Finished, Outbound
from pyggml_server.web.errors import error_response, json_response
from pyggml_server.web.exchange import Exchange
from pyggml_server.web.lazy_timer import LazyTimer
from pyggml_server.web.mailbox import STOPPING_MESSAGE
from pyggml_server.web.ports import RequestPort
from pyggml_server.web.service import Service
from pyggml_server.web.sse import PING, EventText

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),  # tells nginx not to hold events back
]


async def collect(service: Service, request: RequestPort, exchange: Exchange) -> Response:
    """Wait for every task and join the results; the first task that does not finish decides the error."""
    payloads: dict[int, bytes] = {}
    while len(payloads) < len(exchange.task_ids):
        for message in await exchange.take():
            refused = refusal_of(message)
            if refused is not None:
                return refused
            if isinstance(message, Finished):
                payloads[message.task_id] = message.payload
    ordered = [payloads[task_id] for task_id in exchange.task_ids]
    return json_response(await service.in_thread(_join, request, ordered))


async def open_stream(service: Service, request: RequestPort, exchange: Exchange) -> EventStream | Response:
    """The stream from its first messages on, or the plain error response if the first of them is an error."""
    messages = await exchange.take()
    return refusal_of(messages[0]) or EventStream(service, request, exchange, messages)


@dataclass(frozen=True, slots=True)
class EventStream:
    """The response to a streamed request, which `messages` open. Raises TimeoutError when the client takes no data for
    --timeout."""

    service: Service
    request: RequestPort
    exchange: Exchange
    messages: Sequence[Outbound]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self.send_all(send)

    async def send_all(self, send: Send) -> None:
        """Write all of it, until the last event."""
        with anyio.CancelScope() as scope:
            writing = LazyTimer(self.service.settings.timeout_write_s, scope.cancel)
            waiting = LazyTimer(self.request.sse_ping_interval_s, self.exchange.wake)
            try:
                await self._send_events(_Writer(send, writing), waiting)
            finally:
                writing.close()
                waiting.close()
        if scope.cancelled_caught:
            raise TimeoutError

    async def _send_events(self, write: _Writer, waiting: LazyTimer) -> None:
        await write.start()
        text = EventText(self.request, self.exchange.task_ids)
        pending = self.messages
        while True:
            if text.is_ready(pending):
                await write.chunk(text.render(pending))
            else:
                await write.chunk(await self.service.in_thread(text.render, pending))
            if text.is_over:
                break
            waiting.start()
            while not (pending := await self.exchange.take()):
                await write.chunk(PING)
            waiting.pause()
        await write.end()


def refusal_of(message: Outbound) -> Response | None:
    """The error response that this message asks for, or None."""
    if isinstance(message, Failed):
        return error_response(message.status, message.error, message.retry_after_s)
    if isinstance(message, Cancelled):
        return error_response(*error_object(STOPPING_MESSAGE, "unavailable_error"))
    return None


class _Writer:
    """ASGI messages with a time limit each: uvicorn holds `send` back while its buffer (64 KiB) is full."""

    def __init__(self, send: Send, timer: LazyTimer) -> None:
        self._send = send
        self._timer = timer

    async def start(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})

    async def chunk(self, data: bytes) -> None:
        if data:
            await self._timed({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._timed({"type": "http.response.body", "body": b"", "more_body": False})

    async def _timed(self, message: Message) -> None:
        self._timer.start()
        await self._send(message)
        self._timer.pause()


def _join(request: RequestPort, payloads: Sequence[bytes]) -> bytes:
    results = [formatter.result(payload) for formatter, payload in zip(request.formatters, payloads, strict=True)]
    return request.join(results)
