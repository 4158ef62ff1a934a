"""The completion routes: one request from its body to its last byte, and its clean-up whatever happens between.

Event loop thread. A client that leaves, at any moment, cancels the request's tasks; so does an error of our own. Only a
stream with a conversation's id goes on without its client, for who reads it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from pyggml_server.messages import Outbound
from pyggml_server.native.errors import RequestRefusedError
from pyggml_server.native.request_kind import RequestKind
from pyggml_server.web.answer import collect, first_messages, stream
from pyggml_server.web.body import read_body
from pyggml_server.web.errors import error_response, refusal
from pyggml_server.web.exchange import Exchange
from pyggml_server.web.kept_streams import replay
from pyggml_server.web.leaving import cancel_when_gone
from pyggml_server.web.ports import RequestPort
from pyggml_server.web.service import Service
from pyggml_server.web.stream_store import KeptStream

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
            async with AsyncExitStack() as owned:
                await self._compute(body, owned, scope, receive, watched)
        except RequestRefusedError as refused:
            await error_response(refused.status, refused.error)(scope, receive, send)
        except Exception as error:
            log.exception("got exception: %s", error)
            if not watched.has_started:
                await refusal(str(error) or type(error).__name__, "server_error")(scope, receive, send)
            # else the response stays unfinished and uvicorn closes the connection: the client sees that it is cut

    async def _compute(self, body: bytes, owned: AsyncExitStack, scope: Scope, receive: Receive, send: Send) -> None:
        """`owned` frees what the request holds: here, or where a stream that outlives its connection ends."""
        service = self._service
        request = await service.in_thread(service.backend.translator.request, self._kind, body)
        owned.push_async_callback(self._free, request)
        exchange = service.mailbox.open(service.backend.engine, len(request.tasks))
        owned.callback(service.mailbox.close, exchange)
        exchange.submit(request.tasks)
        conversation_id = Headers(scope=scope).get("x-conversation-id", "")
        if conversation_id:
            service.streams.end(conversation_id)  # a conversation has one completion at a time
        if not request.stream:
            response = await collect(service, request, exchange)
            await response(scope, receive, send)
            return
        messages, error = await first_messages(exchange)
        if error is not None:
            await error(scope, receive, send)
        elif conversation_id:
            await owned.enter_async_context(service.awake())  # the stream outlives this request and its hold
            kept = self._keep(conversation_id, request, exchange, messages, owned.pop_all())
            await replay(kept, 0)(scope, receive, send)
        else:
            await stream(service, request, exchange, messages, send)

    def _keep(
        self,
        conversation_id: str,
        request: RequestPort,
        exchange: Exchange,
        messages: Sequence[Outbound],
        owned: AsyncExitStack,
    ) -> KeptStream:
        async def produce(kept: KeptStream) -> None:
            async with owned:
                await stream(self._service, request, exchange, messages, kept.send)

        return self._service.streams.start(conversation_id, produce)

    async def _free(self, request: RequestPort) -> None:
        with anyio.CancelScope(shield=True):
            await self._service.in_thread(request.close)


class _WatchedSend:
    """`send`, and whether a response has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_started = False

    async def __call__(self, message: Message) -> None:
        self.has_started = True
        await self._send(message)
