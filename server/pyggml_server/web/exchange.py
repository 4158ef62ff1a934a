"""One HTTP request's conversation with the engine: the ids of its tasks, and the messages that wait to be read.

Lives on the event loop thread only. Bounded: a client that reads slowly makes messages wait here, never in the
engine; when too much waits, the tasks are cancelled and the client gets an error, so memory does not grow with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pyggml_server.errors import error_object
from pyggml_server.messages import (
    Answered,
    Cancel,
    Cancelled,
    EnginePort,
    Failed,
    Finished,
    Outbound,
    Submit,
    TaskHandle,
    Token,
)

MAX_WAITING_BYTES = 16 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES = 200  # what a message costs apart from its payload, roughly


class Exchange:
    """Submits the tasks of one request, collects what comes back, and cancels what nobody waits for."""

    def __init__(self, engine: EnginePort, task_ids: Sequence[int], max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        self.task_ids = tuple(task_ids)
        self._engine = engine
        self._open_ids = set(task_ids)
        self._waiting: list[Outbound] = []
        self._n_waiting_bytes = 0
        self._max_waiting_bytes = max_waiting_bytes
        self._taker: asyncio.Future[None] | None = None

    def submit(self, tasks: Sequence[TaskHandle], priority: int = 0) -> None:
        """Hand every task to the engine, under the ids of this exchange and in their order."""
        for task_id, task in zip(self.task_ids, tasks, strict=True):
            self._engine.submit(Submit(task_id, task, priority))

    def put(self, message: Outbound) -> None:
        """Take in one message of the engine; messages after a task's last one are ignored."""
        if message.task_id not in self._open_ids:
            return
        if isinstance(message, Token):
            self._n_waiting_bytes += len(message.events)
        elif isinstance(message, (Finished, Answered, Failed, Cancelled)):  # a union would be made anew for each token
            self._open_ids.discard(message.task_id)
            if isinstance(message, Finished):
                self._n_waiting_bytes += len(message.payload)
        self._n_waiting_bytes += MESSAGE_OVERHEAD_BYTES
        self._waiting.append(message)
        if self._n_waiting_bytes > self._max_waiting_bytes:
            self._give_up()
        self.wake()

    async def take(self) -> list[Outbound]:
        """Everything that waits, in order of arrival; waits for the first if there is none, or for `wake`: then there
        may be none. One at a time; safe to cancel."""
        if not self._waiting:
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        messages, self._waiting = self._waiting, []
        self._n_waiting_bytes = 0
        return messages

    def wake(self) -> None:
        """End a `take` that waits. Nothing happens without one."""
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def cancel(self) -> None:
        """Cancel every task that has not ended. Idempotent."""
        for task_id in sorted(self._open_ids):
            self._engine.submit(Cancel(task_id))
        self._open_ids.clear()

    def end_as_cancelled(self) -> None:
        """The server stops: cancel, and tell the waiting request so without waiting for the engine."""
        open_ids = sorted(self._open_ids)
        self.cancel()
        if open_ids:
            self._waiting.append(Cancelled(open_ids[0]))
            self.wake()

    def _give_up(self) -> None:
        self.cancel()
        status, error = error_object(
            f"the client reads too slowly: more than {self._max_waiting_bytes} bytes were waiting",
            "server_error",
        )
        self._waiting = [Failed(self.task_ids[0], status, error)]
