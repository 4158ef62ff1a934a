"""The LoRA adapters: which there are, and their scales for requests that name none. They never reach the engine."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.web.body import read_body
from pyggml_server.web.errors import json_response
from pyggml_server.web.service import Service


class AdapterRoutes:
    """The handlers of GET and POST. RequestRefusedError becomes the error response in `application`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def show(self, _: Request) -> Response:
        return json_response(await self._service.in_thread(self._service.backend.translator.adapters))

    async def change(self, request: Request) -> Response:
        """Requests that are running or waiting keep the scales that they came with."""
        change = self._service.backend.translator.set_adapters
        return json_response(await self._service.in_thread(change, await read_body(request)))
