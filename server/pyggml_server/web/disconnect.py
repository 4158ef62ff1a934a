"""Noticing that a client has disconnected. Event loop thread."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from pyggml_server.abandoned import Abandoned

T = TypeVar("T")


async def cancel_when_gone(receive: Receive, scope: anyio.CancelScope, abandoned: Abandoned | None) -> None:
    """Set `abandoned` and cancel `scope` once the client has disconnected. The body has been read: whatever else
    arrives is thrown away."""
    await until_gone(receive)
    if abandoned is not None:
        abandoned.set()
    scope.cancel()


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T], abandoned: Abandoned | None = None) -> T:
    """What `work` gives or raises. If the client disconnects first, `abandoned` is set and `work` is cancelled. Raises
    ClientDisconnect then."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_when_gone, receive, group.cancel_scope, abandoned)
        try:
            return await work
        except Exception as error:
            failure = error  # the group would raise it inside a group of exceptions
        finally:
            group.cancel_scope.cancel()
    raise failure or ClientDisconnect


async def until_gone(receive: Receive) -> None:
    """Wait until the client has disconnected. The body has been read: whatever else arrives is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass
