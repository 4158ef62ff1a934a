"""A translated request: its tasks for the engine, and the formatting of what comes back. Any thread, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyggml_server.native.border import call, ffi, lib, take_bytes
from pyggml_server.native.task import Task


class Request:
    """One HTTP request after translation.

    tasks       one per prompt and requested completion; hand each to the engine, which owns it from then on.
    formatters  one per task, in the same order.
    """

    def __init__(self, handle: Any, owner: Any) -> None:
        self._handle: Any = ffi.gc(handle, lib.pyggml_request_free)
        self._owner = owner
        info = ffi.new("pyggml_request_info *")
        lib.pyggml_request_get_info(handle, info)
        self.stream: bool = bool(info.stream)
        self.ends_with_done: bool = bool(info.ends_with_done)
        self.sse_ping_interval_s: int = info.sse_ping_interval_s
        self.tasks = tuple(Task(lib.pyggml_request_take_task(handle, i), owner) for i in range(info.n_tasks))
        for task in self.tasks:
            task.parent = self.tasks[task.i_parent] if task.i_parent >= 0 else None
        self.formatters = tuple(Formatter(self, i) for i in range(info.n_tasks))

    @property
    def handle(self) -> Any:
        """The native object. Raises RuntimeError after close()."""
        if self._handle is None:
            raise RuntimeError("this request is closed")
        return self._handle

    def join(self, results: Sequence[bytes]) -> bytes:
        """The response body of a request that is not streamed, from every formatter's result in task order."""
        texts = [ffi.from_buffer("char[]", result) for result in results]
        out = ffi.new("pyggml_bytes *")
        sizes = ffi.new("size_t[]", [len(result) for result in results])
        call(lib.pyggml_request_join, self.handle, len(texts), ffi.new("char *[]", texts), sizes, out)
        return take_bytes(out)

    def close(self) -> None:
        """Free the native side. Idempotent; a formatter still at work keeps it until it is done."""
        self._handle = None


class Formatter:
    """Turns the end of one task into the API's text. The engine has formatted the events before it."""

    def __init__(self, request: Request, index: int) -> None:
        self._request = request
        self._index = index

    def last_events(self, payload: bytes) -> bytes:
        """Server-sent events of the Finished payload of a streamed request."""
        return self._format(payload, as_stream=True)

    def result(self, payload: bytes) -> bytes:
        """JSON of the Finished payload of a request that is not streamed."""
        return self._format(payload, as_stream=False)

    def stream_error(self, error: bytes) -> bytes:
        """The server-sent event for an error object in the middle of a stream."""
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_request_format_error, self._request.handle, error, len(error), out)
        return take_bytes(out)

    def _format(self, payload: bytes, as_stream: bool) -> bytes:
        handle = self._request.handle
        out = ffi.new("pyggml_bytes *")
        data = ffi.from_buffer("uint8_t[]", payload)
        call(lib.pyggml_request_format, handle, self._index, data, len(payload), as_stream, out)
        return take_bytes(out)
