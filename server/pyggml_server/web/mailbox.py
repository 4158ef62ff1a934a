"""Where the engine's messages enter the event loop: one hand-over per engine pass, then routing by task id.

`deliver` runs on the engine thread and never blocks; everything else runs on the event loop thread.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from pyggml_server.messages import EnginePort, Outbound
from pyggml_server.web.errors import refused
from pyggml_server.web.exchange import Exchange

STOPPING_MESSAGE = "The server is stopping"


class Mailbox:
    """The open exchanges by task id."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exchanges: dict[int, Exchange] = {}
        self._next_id = itertools.count()
        self._is_stopping = False

    def bind(self) -> None:
        """Deliver to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def deliver(self, batch: Sequence[Outbound]) -> None:
        """Hand one pass's messages to the event loop. Any thread; does not block."""
        if self._loop is None or not batch:
            return
        try:
            self._loop.call_soon_threadsafe(self._route, tuple(batch))
        except RuntimeError:
            # the loop is closed: the web side ended first, and nobody waits for these messages
            return

    def call(self, function: Callable[[], None]) -> None:
        """Have the event loop call a function. Any thread; does not block, and does nothing without a loop."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # the loop is closed: nobody waits for this any more
            return

    def open(self, engine: EnginePort, n_tasks: int) -> Exchange:
        """An exchange with `n_tasks` new ids. Raises RequestRefusedError once the server stops."""
        if self._is_stopping:
            raise refused(STOPPING_MESSAGE, "unavailable_error")
        exchange = Exchange(engine, list(itertools.islice(self._next_id, n_tasks)))
        self._exchanges.update(dict.fromkeys(exchange.task_ids, exchange))
        return exchange

    def close(self, exchange: Exchange) -> None:
        """Cancel what has not ended and forget the exchange. Idempotent."""
        exchange.cancel()
        for task_id in exchange.task_ids:
            self._exchanges.pop(task_id, None)

    def stop(self) -> None:
        """End every open exchange as cancelled, and open no more."""
        self._is_stopping = True
        for exchange in set(self._exchanges.values()):
            exchange.end_as_cancelled()

    def _route(self, batch: Sequence[Outbound]) -> None:
        for message in batch:
            exchange = self._exchanges.get(message.task_id)
            if exchange is not None:
                exchange.put(message)
