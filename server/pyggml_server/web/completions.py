"""The completion routes: one request from its body to its last byte, and its clean-up whatever happens between.

Event loop thread. A client that leaves, at any moment, cancels the request's tasks; so does an error of our own.
"""

from __future__ import annotations

import logging

import anyio
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from pyggml_server.native.errors import RequestRefusedError
from pyggml_server.native.request_kind import RequestKind
from pyggml_server.web.answer import collect, first_messages, stream
from pyggml_server.web.body import read_body
from pyggml_server.web.errors import error_response, refusal
from pyggml_server.web.leaving import cancel_when_gone
from pyggml_server.web.ports import RequestPort
from pyggml_server.web.service import Service

log = logging.getLogger(__name__)


class CompletionRoute:
    """ASGI endpoint of the completion routes of one API."""

    def __init__(self, service: Service, kind: RequestKind) -> None:
        self._service = service
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, watching for the client to leave meanwhile."""
        body = await read_body(Request(scope, receive))
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_when_gone, receive, group.cancel_scope)
            await self._answer(body, scope, receive, send)
            group.cancel_scope.cancel()

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        watched = _WatchedSend(send)
        try:
            request = await self._service.in_thread(self._service.backend.translator.request, self._kind, body)
            try:
                await self._compute(request, scope, receive, watched)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._service.in_thread(request.close)
        except RequestRefusedError as refused:
            await error_response(refused.status, refused.error)(scope, receive, send)
        except Exception as error:
            log.exception("got exception: %s", error)
            if not watched.has_started:
                await refusal(str(error) or type(error).__name__, "server_error")(scope, receive, send)
            # else the response stays unfinished and uvicorn closes the connection: the client sees that it is cut

    async def _compute(self, request: RequestPort, scope: Scope, receive: Receive, send: Send) -> None:
        mailbox = self._service.mailbox
        exchange = mailbox.open(self._service.backend.engine, len(request.tasks))
        try:
            exchange.submit(request.tasks)
            if not request.stream:
                response = await collect(self._service, request, exchange)
                await response(scope, receive, send)
                return
            messages, error = await first_messages(exchange)
            if error is not None:
                await error(scope, receive, send)
                return
            await stream(self._service, request, exchange, messages, send)
        finally:
            mailbox.close(exchange)


class _WatchedSend:
    """`send`, and whether a response has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        self.has_started = True
        await self._send(message)
