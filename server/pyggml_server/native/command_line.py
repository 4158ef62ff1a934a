"""The command line as llama.cpp's own parser reads it. Main thread, before the engine starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pyggml.backends import load_backends
from pyggml_server.errors import UsageError
from pyggml_server.native.border import PyggmlError, call, ffi, lib, take_bytes

PROGRAM = "llama-server"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the HTTP side needs of the parsed command line; names follow llama.cpp's, units added."""

    hostnames: tuple[str, ...]
    port: int
    api_prefix: str
    api_keys: tuple[str, ...]
    timeout_read_s: int
    timeout_write_s: int
    ssl_key_file: str
    ssl_cert_file: str
    reuse_port: bool
    cors_origins: str
    cors_methods: str
    cors_headers: str
    cors_credentials: bool
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    slot_save_path: str
    public_path: str
    ui: bool
    ui_mcp_proxy: bool
    has_server_tools: bool
    n_parallel: int
    kv_unified: bool
    sse_ping_interval_s: int
    sleep_idle_s: int
    n_threads_http: int
    model_name: str
    model_path: str
    is_router: bool
    is_offline: bool
    verbosity: int


class CommandLine:
    """A parsed command line. Close it, or let it go; loading takes a copy."""

    def __init__(self, handle: Any, settings: Settings) -> None:
        self._handle = handle
        self._on_progress: Any = None
        self.settings = settings

    @classmethod
    def parse(cls, argv: Sequence[str]) -> CommandLine:
        """Parse arguments (without the program's name).

        Raises UsageError where llama.cpp refuses them (its reason is on stderr already when the message is empty).
        For `--help`, `--version` and their like llama.cpp prints and ends the process with status 0.
        """
        sys.stdout.flush()
        load_backends()
        words = [ffi.new("char[]", word.encode("utf-8", "surrogateescape")) for word in (PROGRAM, *argv)]
        out = ffi.new("pyggml_args **")
        try:
            call(lib.pyggml_args_parse, len(words), ffi.new("char *[]", words), out)
        except PyggmlError as error:
            raise UsageError(str(error)) from None
        handle = ffi.gc(out[0], lib.pyggml_args_free)
        return cls(handle, _settings(handle))

    def tell_load_progress(self, tell: Callable[[float], None]) -> None:
        """Call `tell` with how much of the model is loaded, from 0 to 1, on the thread that loads it."""

        def on_progress(part: float, _: Any) -> bool:
            tell(part)
            return True

        self._on_progress = ffi.callback("bool(float, void *)", on_progress)
        lib.pyggml_args_on_load_progress(self._handle, self._on_progress)

    @property
    def handle(self) -> Any:
        """The native object, for `Runtime.load`."""
        return self._handle


def _settings(handle: Any) -> Settings:
    out = ffi.new("pyggml_bytes *")
    call(lib.pyggml_args_json, handle, out)
    values = json.loads(take_bytes(out))
    for name in ("hostnames", "api_keys"):
        values[name] = tuple(values[name])
    return Settings(**{field.name: values[field.name] for field in fields(Settings)})
