"""The completion routes: one request from its body to its last byte, and its clean-up whatever happens between.

Event loop thread. If the client disconnects, at any moment, the request's tasks are cancelled; an error of our own does
the same. Only a stream with a conversation's id continues without its client, once it is in line, for later readers.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pyggml_server.abandoned import Abandoned
from pyggml_server.errors import RequestRefusedError
from pyggml_server.request_kind import RequestKind
from pyggml_server.web.answer import EventStream, collect, open_stream
from pyggml_server.web.body import read_upload
from pyggml_server.web.disconnect import cancel_when_gone
from pyggml_server.web.errors import error_response, refusal
from pyggml_server.web.exchange import Exchange
from pyggml_server.web.kept_streams import conversation_of, replay
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
        """Answer one request, and notice if the client disconnects meanwhile."""
        with self._service.drain.new_request():
            body, sound = await read_upload(Request(scope, receive))
            abandoned = Abandoned()
            async with anyio.create_task_group() as group:
                group.start_soon(cancel_when_gone, receive, group.cancel_scope, abandoned)
                await self._answer(body, sound, abandoned, scope, receive, send)
                group.cancel_scope.cancel()

    async def _answer(
        self, body: bytes, sound: bytes | None, abandoned: Abandoned, scope: Scope, receive: Receive, send: Send
    ) -> None:
        watched = _WatchedSend(send)
        try:
            async with AsyncExitStack() as owned:
                if self._kind.may_name_media:
                    body = await self._service.with_media(body)
                translate, headers = partial(self._translate, body, sound, abandoned), Headers(scope=scope)
                request, priority = await self._service.in_thread(translate, headers)
                owned.push_async_callback(self._free, request)
                await self._compute(request, priority, owned, scope, receive, watched)
        except RequestRefusedError as refused:
            await error_response(refused.status, refused.error)(scope, receive, send)
        except Exception as error:
            log.exception("got exception: %s", error)
            if not watched.has_started:
                await refusal(str(error) or type(error).__name__, "server_error")(scope, receive, send)
            # else the response stays unfinished and uvicorn closes the connection: the client sees that it is cut

    def _translate(
        self, body: bytes, sound: bytes | None, abandoned: Abandoned, headers: Headers
    ) -> tuple[RequestPort, int]:
        """The request and its class. Worker thread."""
        service = self._service
        priority = service.priorities.of(headers, body)
        return service.backend.translator.request(self._kind, body, abandoned, sound), priority

    async def _compute(
        self, request: RequestPort, priority: int, owned: AsyncExitStack, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`owned` frees what the request holds: here, or where a stream that outlives its connection ends."""
        service = self._service
        exchange = service.mailbox.open(service.backend.engine, len(request.tasks))
        owned.callback(service.mailbox.close, exchange)
        exchange.submit(request.tasks, priority)
        conversation_id = conversation_of(scope) if self._kind.generates else ""
        response: Response | EventStream
        if conversation_id and request.stream:
            response = await self._kept(conversation_id, request, exchange, owned)
        elif conversation_id:
            response = await self._found_meanwhile(conversation_id, request, exchange)
        elif request.stream:
            response = await open_stream(service, request, exchange)
        else:
            response = await collect(service, request, exchange)
        await response(scope, receive, send)

    async def _kept(
        self, conversation_id: str, request: RequestPort, exchange: Exchange, owned: AsyncExitStack
    ) -> Response:
        """The conversation's stream, which continues without its client, or the error that came in its place."""
        service = self._service
        await owned.enter_async_context(service.awake())  # the stream outlives this request and its holds
        owned.enter_context(service.drain.hold())
        kept = service.streams.open(conversation_id, exchange.end_as_cancelled)
        opening = asyncio.ensure_future(open_stream(service, request, exchange))
        kept.begin(partial(self._fill, opening, owned.pop_all()))
        response = await asyncio.shield(opening)
        # one that was stopped before it said anything is an empty stream
        return replay(kept, 0) if kept.is_cancelled or isinstance(response, EventStream) else response

    async def _fill(
        self, opening: asyncio.Future[EventStream | Response], owned: AsyncExitStack, kept: KeptStream
    ) -> None:
        async with owned:
            response = await opening
            if isinstance(response, EventStream):
                await response.send_all(kept.send)
            else:
                self._service.streams.forget(kept)

    async def _found_meanwhile(self, conversation_id: str, request: RequestPort, exchange: Exchange) -> Response:
        """An answer all at once. As in llama-server it is shown as a stream that says nothing; nobody can stop it."""
        kept = self._service.streams.open(conversation_id, _do_nothing)
        try:
            return await collect(self._service, request, exchange)
        finally:
            self._service.streams.forget(kept)

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


def _do_nothing() -> None:
    """What stops nobody."""
