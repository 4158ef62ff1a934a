"""Noticing that a client has left. Event loop thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from pyggml_server.abandoned import Abandoned

T = TypeVar("T")


async def cancel_when_gone(receive: Receive, scope: anyio.CancelScope, abandoned: Abandoned) -> None:
    """Cancel `scope` and set `abandoned` once the client has left. The body has been read: whatever else arrives is
    thrown away."""
    await until_gone(receive)
    abandoned.set()
    scope.cancel()


async def while_client_stays(receive: Receive, work: Coroutine[Any, Any, T], abandoned: Abandoned | None = None) -> T:
    """What `work` gives or raises. When the client leaves first `abandoned` is set, `work` cancelled and waited for.
    Raises ClientDisconnect then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(until_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            if abandoned is not None:
                abandoned.set()
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))


async def until_gone(receive: Receive) -> None:
    """Wait until the client has left. The body has been read: whatever else arrives is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass
