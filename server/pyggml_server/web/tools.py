"""GET and POST /tools: llama-server's built-in tools and those of MCP servers.

Event loop thread. A tool runs on a worker thread for as long as it takes, and not on one of those that translate
requests. A client that disconnects stops its tool, if the tool can be stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pyggml_server.web.answer import STREAM_HEADERS
from pyggml_server.web.body import read_body
from pyggml_server.web.disconnect import until_gone
from pyggml_server.web.errors import early_refusal, json_response
from pyggml_server.web.ports import ToolCallPort, ToolsPort

MAX_RUNNING = 256  # tools at once; further calls wait
T = TypeVar("T")


def show_tools(tools: ToolsPort) -> Callable[[Request], Response]:
    """The handler of GET /tools."""

    def show(_: Request) -> Response:
        return json_response(tools.list())

    return show


class ToolCallRoute:
    """ASGI endpoint of POST /tools."""

    def __init__(self, tools: ToolsPort) -> None:
        self._tools = tools
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One call, from its body to its last byte."""
        body = await read_body(Request(scope, receive))
        call = await self._in_thread(partial(self._tools.new_call, body, scope["headers"]))
        disconnect = asyncio.ensure_future(_stop_when_gone(receive, call))
        try:
            await self._in_thread(call.run)
            await self._answer(call, scope, receive, send)
        finally:
            disconnect.cancel()
            with anyio.CancelScope(shield=True):
                await self._in_thread(call.close)

    async def _answer(self, call: ToolCallPort, scope: Scope, receive: Receive, send: Send) -> None:
        if call.status == 404:
            # llama-server has a text for this, but its HTTP layer writes over every 404
            await early_refusal("File Not Found", "not_found_error")(scope, receive, send)
            return
        if not call.is_stream:
            await Response(call.body, call.status, {"content-type": call.content_type})(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": call.status, "headers": STREAM_HEADERS})
        has_more = True
        while has_more:
            chunk, has_more = await self._in_thread(call.next_chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": has_more})

    async def _in_thread(self, function: Callable[[], T]) -> T:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_RUNNING)
        return await anyio.to_thread.run_sync(function, limiter=self._limiter)


async def _stop_when_gone(receive: Receive, call: ToolCallPort) -> None:
    await until_gone(receive)
    call.stop()
