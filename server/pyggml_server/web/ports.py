"""What the web side needs from the others, as protocols: it is given the real ones, tests give it fakes. A leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyggml_server.abandoned import Abandoned
from pyggml_server.messages import TaskHandle
from pyggml_server.request_kind import RequestKind


class FormatterPort(Protocol):
    """Turns the end of one task into bytes for the client. Milliseconds: worker threads only, one at a time."""

    def last_events(self, payload: bytes) -> bytes:
        """SSE bytes of a Finished payload of a streamed request."""

    def result(self, payload: bytes) -> bytes:
        """The JSON of a Finished payload of a request that is not streamed."""

    def stream_error(self, error: bytes) -> bytes:
        """SSE bytes of an error object in the middle of a stream."""


class RequestPort(Protocol):
    """One translated request: the tasks for the engine, and a formatter for each, in the same order."""

    @property
    def stream(self) -> bool: ...
    @property
    def ends_with_done(self) -> bool: ...
    @property
    def sse_ping_interval_s(self) -> int: ...
    @property
    def tasks(self) -> Sequence[TaskHandle]: ...
    @property
    def formatters(self) -> Sequence[FormatterPort]: ...

    def join(self, results: Sequence[bytes]) -> bytes:
        """The response body from every formatter's result, in task order."""

    def close(self) -> None:
        """Free the native side."""


class TranslatorPort(Protocol):
    """Request bodies to tasks. Thread-safe; milliseconds, for hard bodies seconds: worker threads only. Refuses with
    RequestRefusedError."""

    @property
    def has_media(self) -> bool:
        """Whether chats may have images or sounds."""

    def request(self, kind: RequestKind, body: bytes, abandoned: Abandoned, sound: bytes | None = None) -> RequestPort:
        """`sound`: the file that came with a transcription's body."""

    def tokenize(self, body: bytes, abandoned: Abandoned) -> bytes: ...
    def detokenize(self, body: bytes, abandoned: Abandoned) -> bytes: ...
    def apply_template(self, body: bytes, abandoned: Abandoned) -> bytes: ...
    def count_tokens(self, kind: RequestKind, body: bytes, abandoned: Abandoned) -> bytes: ...
    def slot_file(self, body: bytes) -> tuple[str, str]: ...
    def controlled_completion(self, body: bytes) -> str: ...
    def adapters(self) -> bytes: ...
    def set_adapters(self, body: bytes) -> bytes: ...
    def props(self) -> bytes: ...
    def models(self) -> bytes: ...


class ToolCallPort(Protocol):
    """One call of a tool. Blocks for as long as the tool runs: worker threads only, one at a time but for `stop`."""

    @property
    def status(self) -> int: ...
    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def is_stream(self) -> bool: ...

    def run(self) -> None:
        """Run the tool to its end, or start its stream; the properties are the answer then."""

    def next_chunk(self) -> tuple[bytes, bool]:
        """The next bytes of the stream, and whether more follow."""

    def stop(self) -> None:
        """End it soon, if its tool can be stopped. Any thread; does not block."""

    def close(self) -> None:
        """Wait for its end and free it."""


class ToolsPort(Protocol):
    """The tools behind /tools. Thread-safe."""

    def list(self) -> bytes: ...
    def new_call(self, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> ToolCallPort:
        """A call that `run` begins. Copies the body: worker threads only."""

    def stop(self) -> None:
        """End all calls soon. Does not block."""


class WebSettings(Protocol):
    """The flags of llama-server that the HTTP side obeys, as llama.cpp parsed them. Times in seconds."""

    @property
    def hostnames(self) -> tuple[str, ...]: ...
    @property
    def port(self) -> int: ...
    @property
    def reuse_port(self) -> bool: ...
    @property
    def api_prefix(self) -> str: ...
    @property
    def api_keys(self) -> tuple[str, ...]: ...
    @property
    def timeout_write_s(self) -> int: ...
    @property
    def ssl_key_file(self) -> str: ...
    @property
    def ssl_cert_file(self) -> str: ...
    @property
    def cors_origins(self) -> str: ...
    @property
    def cors_methods(self) -> str: ...
    @property
    def cors_headers(self) -> str: ...
    @property
    def cors_credentials(self) -> bool: ...
    @property
    def endpoint_slots(self) -> bool: ...
    @property
    def endpoint_props(self) -> bool: ...
    @property
    def endpoint_metrics(self) -> bool: ...
    @property
    def slot_save_path(self) -> str: ...
    @property
    def public_path(self) -> str: ...
    @property
    def ui(self) -> bool: ...
    @property
    def ui_mcp_proxy(self) -> bool: ...
    @property
    def sleep_idle_s(self) -> int: ...
    @property
    def n_parallel(self) -> int: ...
    @property
    def n_threads_http(self) -> int: ...
