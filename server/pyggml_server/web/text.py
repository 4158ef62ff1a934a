"""The routes that only translate text: tokenize, detokenize, apply-template, counting. They never reach the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.abandoned import Abandoned
from pyggml_server.request_kind import RequestKind
from pyggml_server.web.body import read_body
from pyggml_server.web.disconnect import while_connected
from pyggml_server.web.errors import json_response
from pyggml_server.web.service import Service

Translate = Callable[[bytes, Abandoned], bytes]


class TextRoutes:
    """The handlers, each for one path. RequestRefusedError becomes the error response in `application`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> Response:
        return await self._answer_text(request, self._service.backend.translator.tokenize)

    async def detokenize(self, request: Request) -> Response:
        return await self._answer_text(request, self._service.backend.translator.detokenize)

    async def apply_template(self, request: Request) -> Response:
        return await self._answer_chat(request, self._service.backend.translator.apply_template)

    async def count_chat(self, request: Request) -> Response:
        return await self._count(RequestKind.OAI_CHAT, request)

    async def count_responses(self, request: Request) -> Response:
        return await self._count(RequestKind.OAI_RESPONSES, request)

    async def count_messages(self, request: Request) -> Response:
        return await self._count(RequestKind.ANTHROPIC, request)

    async def _count(self, kind: RequestKind, request: Request) -> Response:
        return await self._answer_chat(request, partial(self._service.backend.translator.count_tokens, kind))

    async def _answer_text(self, request: Request, translate: Translate) -> Response:
        """What `translate` makes of the body. It ends soon if the client disconnects."""
        body, abandoned = await read_body(request), Abandoned()
        work = self._service.in_thread(translate, body, abandoned)
        return json_response(await while_connected(request.receive, work, abandoned))

    async def _answer_chat(self, request: Request, translate: Translate) -> Response:
        """The same for a body with messages, which may name images."""
        body, abandoned = await read_body(request), Abandoned()
        work = self._translated(translate, body, abandoned)
        return json_response(await while_connected(request.receive, work, abandoned))

    async def _translated(self, translate: Translate, body: bytes, abandoned: Abandoned) -> bytes:
        return await self._service.in_thread(translate, await self._service.with_media(body), abandoned)
