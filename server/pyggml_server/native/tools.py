"""llama-server's tools and MCP servers: what /tools lists, and one call of a tool.

`Tools.start` and `Tools.close` on the main thread; the rest on any thread, each call on one at a time but for `stop`. A
call blocks for as long as its tool runs, with the GIL released.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pyggml_server.errors import UsageError
from pyggml_server.native.border import PyggmlError, call, ffi, lib, take_bytes
from pyggml_server.native.command_line import CommandLine


class Tools:
    """The tools of one command line."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._calls: set[ToolCall] = set()
        self._is_stopped = False

    @classmethod
    def start(cls, command_line: CommandLine) -> Tools | None:
        """None where the command line names no tools. Spawns its MCP servers once, and blocks for that.

        Raises UsageError for a tool that does not exist and for a configuration that cannot be read.
        """
        out = ffi.new("pyggml_tools **")
        try:
            call(lib.pyggml_tools_start, command_line.handle, out)
        except PyggmlError as error:
            raise UsageError(f"error: {error}") from None
        return None if out[0] == ffi.NULL else cls(out[0])

    def list(self) -> bytes:
        """The JSON of GET /tools."""
        out = ffi.new("pyggml_bytes *")
        call(lib.pyggml_tools_list, self._handle, out)
        return take_bytes(out)

    def new_call(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> ToolCall:
        """A call that `run` begins. Close it. Copies the body."""
        texts = [ffi.new("char[]", text) for header in headers for text in header]
        out = ffi.new("pyggml_tool_call **")
        names_and_values = ffi.new("char *[]", texts)
        call(lib.pyggml_tool_call_new, self._handle, body, len(body), len(headers), names_and_values, out)
        made = ToolCall(out[0], self._forget)
        with self._lock:
            self._calls.add(made)
            if self._is_stopped:
                made.stop()
        return made

    def stop(self) -> None:
        """Calls that are under way come to an end, as far as their tools can be stopped. Idempotent; does not block."""
        lib.pyggml_tools_shutdown(self._handle)
        with self._lock:
            self._is_stopped = True
            for running in self._calls:
                running.stop()

    def close(self) -> None:
        """End the MCP servers, and block for that. With a call still running nothing is freed: the servers end with the
        process, which closes their pipes."""
        with self._lock:
            handle, self._handle = self._handle, ffi.NULL
            has_calls = bool(self._calls)
        if handle != ffi.NULL and not has_calls:
            lib.pyggml_tools_free(handle)

    def _forget(self, ended: ToolCall) -> None:
        with self._lock:
            self._calls.discard(ended)


class ToolCall:
    """One POST /tools, made by `Tools.new_call`. Its properties are those of the answer, once it was run."""

    def __init__(self, handle: Any, forget: Callable[[ToolCall], None]) -> None:
        self._handle = handle
        self._forget = forget
        self._lock = threading.Lock()  # `stop` must not meet `close`
        self._at_work = threading.Lock()  # nor `close` what runs: who waited for that may have been cancelled
        self.status = 0
        self.content_type = ""
        self.body = b""
        self.is_stream = False

    def run(self) -> None:
        """Run the tool to its end, or start it where the body asks for a stream. Blocks."""
        answer = ffi.new("pyggml_tool_answer *")
        with self._at_work:
            call(lib.pyggml_tool_call_run, self._handle)
            lib.pyggml_tool_call_get_answer(self._handle, answer)
            self.status = answer.status
            self.is_stream = bool(answer.is_stream)
            self.content_type = ffi.string(answer.content_type).decode()
            self.body = bytes(ffi.buffer(answer.body.data, answer.body.size))

    def next_chunk(self) -> tuple[bytes, bool]:
        """The next bytes of a stream, possibly none, and whether more follow. Blocks until there are some."""
        out, has_more = ffi.new("pyggml_bytes *"), ffi.new("int32_t *")
        with self._at_work:
            call(lib.pyggml_tool_call_next, self._handle, out, has_more)
        return take_bytes(out), bool(has_more[0])

    def stop(self) -> None:
        """A tool that streams ends soon, and then its stream. Does not block; also after `close`."""
        with self._lock:
            if self._handle != ffi.NULL:
                lib.pyggml_tool_call_stop(self._handle)

    def close(self) -> None:
        """Stop it, wait for its end and free it. Idempotent."""
        self.stop()
        with self._at_work, self._lock:
            handle, self._handle = self._handle, ffi.NULL
        if handle != ffi.NULL:
            lib.pyggml_tool_call_free(handle)
            self._forget(self)
