"""The text of one event stream: the engine's messages in, SSE bytes out. One thread at a time.

Knows no socket and no event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyggml_server.errors import error_object
from pyggml_server.messages import Answered, Began, Cancelled, Failed, Finished, Notice, Outbound, Token
from pyggml_server.web.mailbox import STOPPING_MESSAGE
from pyggml_server.web.ports import FormatterPort, RequestPort

log = logging.getLogger(__name__)

PING = b":\n\n"
DONE = b"data: [DONE]\n\n"


class EventText:
    """Renders the messages of one request in order; `is_over` once nothing may follow."""

    def __init__(self, request: RequestPort, task_ids: Sequence[int]) -> None:
        self._formatters: dict[int, FormatterPort] = dict(zip(task_ids, request.formatters, strict=True))
        self._unfinished = set(task_ids)
        self._ends_with_done = request.ends_with_done
        self.is_over = False

    @staticmethod
    def is_ready(messages: Sequence[Outbound]) -> bool:
        """Whether `render` has nothing to format, so that it takes no longer than to copy the bytes."""
        return all(isinstance(message, (Token, Notice, Began)) for message in messages)

    def render(self, messages: Sequence[Outbound]) -> bytes:
        """The SSE bytes of these messages, possibly none. An error, also one of formatting, is the last event."""
        text = bytearray()
        for message in messages:
            try:
                text += self._event(message)
            except Exception as error:
                log.exception("formatting a result of task %d failed", message.task_id)
                text += self._error(message.task_id, error_object(str(error), "server_error")[1])
            if self.is_over:
                break
        return bytes(text)

    def _event(self, message: Outbound) -> bytes:
        match message:
            case Token(events=events):
                return events
            case Began() | Answered():  # a completion is never Answered
                return b""
            case Notice(text=text):
                return b": " + text.encode() + b"\n\n"
            case Finished(payload=payload):
                return self._formatters[message.task_id].last_events(payload) + self._finish(message.task_id)
            case Failed(error=error):
                return self._error(message.task_id, error)
            case Cancelled():
                return self._error(message.task_id, error_object(STOPPING_MESSAGE, "unavailable_error")[1])

    def _finish(self, task_id: int) -> bytes:
        self._unfinished.discard(task_id)
        self.is_over = not self._unfinished
        return DONE if self.is_over and self._ends_with_done else b""

    def _error(self, task_id: int, error: bytes) -> bytes:
        self.is_over = True
        return self._formatters[task_id].stream_error(error)
