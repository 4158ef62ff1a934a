"""Composition root: command line, listening sockets, HTTP server, engine, signals; and the order of start and end.

Main thread. The HTTP server listens before the model is loaded, so that /health answers meanwhile and a busy port
ends the process before the long wait. Only this module knows both the web side and the engine.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pyggml_server import cli
from pyggml_server.download.ports import DownloadError
from pyggml_server.errors import UsageError
from pyggml_server.exposed_tools import ExposedToolsError, refuse_exposed_tools
from pyggml_server.flags import help_text
from pyggml_server.log_lines import send_log_to
from pyggml_server.messages import Deliver, EnginePort
from pyggml_server.signals import Signals
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.http_server import HttpServer
from pyggml_server.web.listen import ListenError, SetupError, listen
from pyggml_server.web.ports import ToolsPort, TranslatorPort, WebSettings
from pyggml_server.web.service import Backend, Service
from pyggml_server.web.vertex import VertexError, VertexRoutes

if TYPE_CHECKING:
    from pyggml_server.native.command_line import CommandLine, Settings

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
LOADING_GRACE_S = 5.0  # how long an end waits for a model that is still loading, which cannot be interrupted


class EngineControl(EnginePort, Protocol):
    """The engine as its owner sees it."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def join(self, timeout_s: float | None = None) -> bool: ...


# (deliver, on_ready, on_failed) -> engine, not started; the callbacks are called on the engine thread
EngineFactory = Callable[[Deliver, Callable[[TranslatorPort], None], Callable[[str], None]], EngineControl]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine has a model."""

    translator: TranslatorPort


@dataclass(frozen=True, slots=True)
class Ended:
    """Something ended by itself that should not have; the message says what and why."""

    message: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The files of the models are there."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Somebody asked for the end."""


class Server:
    """One run of the server: `run` on one thread, `interrupt` from any thread or a signal handler.

    fetch  gets the models' files before the engine starts, on a thread of its own; raises DownloadError. Nothing waits
           for it at an end that was asked for.
    """

    def __init__(
        self,
        settings: WebSettings,
        make_engine: EngineFactory,
        vertex: VertexRoutes | None = None,
        chat_page: ChatPage | None = None,
        fetch: Callable[[], None] | None = None,
        tools: ToolsPort | None = None,
    ) -> None:
        self._service = Service(settings, vertex, chat_page, tools)
        self._make_engine = make_engine
        self._fetch = fetch
        self._events: queue.SimpleQueue[Fetched | Loaded | Ended | Interrupted] = queue.SimpleQueue()
        self._fetching = threading.Thread(target=self._run_fetch, name="downloads", daemon=True)
        self.addresses: tuple[str, ...] = ()
        self.is_ready = threading.Event()
        self.left_native_running = False

    def interrupt(self) -> None:
        """End in good order. Does not block; safe in a signal handler."""
        self._events.put(Interrupted())

    def run(self) -> int:
        """Serve until the end and return the exit code."""
        try:
            http = self._start_http()
        except ListenError as error:
            log.error("%s", error)
            is_setup = isinstance(error, SetupError)
            log.error("failed to initialize HTTP server" if is_setup else "exiting due to HTTP server error")
            return 1
        engine = self._make_engine(
            self._service.mailbox.deliver,
            lambda translator: self._events.put(Loaded(translator)),
            lambda message: self._events.put(Ended(message)),
        )
        if self._fetch is None:
            engine.start()
        else:
            self._fetching.start()
        code = self._wait(engine)
        self._end(http, engine)
        return code

    def _run_fetch(self) -> None:
        assert self._fetch is not None
        try:
            self._fetch()
        except DownloadError as error:
            self._events.put(Ended(str(error)))
        except Exception as error:
            log.exception("a download failed")
            self._events.put(Ended(f"a download failed: {str(error) or type(error).__name__}"))
        else:
            self._events.put(Fetched())

    def _start_http(self) -> HttpServer:
        listeners = listen(self._service.settings)
        try:
            http = HttpServer(self._service, listeners, lambda: self._events.put(Ended("the HTTP server ended")))
            http.start()
        except ListenError:
            listeners.close()
            raise
        self.addresses = tuple(listeners.addresses)
        settings = self._service.settings
        if settings.cors_origins == "*" and not settings.api_keys:
            log.warning("security: no API key is set and CORS allows all origins")
        return http

    def _wait(self, engine: EngineControl) -> int:
        while True:
            match self._events.get():
                case Fetched():
                    engine.start()
                case Loaded(translator=translator):
                    self._service.open(Backend(engine, translator))
                    if not self.is_ready.is_set():  # else it was loaded again
                        self._say_ready()
                    self.is_ready.set()
                case Ended(message=message):
                    log.error("%s", message)
                    log.error("exiting due to %s error", "server" if self.is_ready.is_set() else "model loading")
                    return 1
                case Interrupted():
                    return 0

    def _say_ready(self) -> None:
        log.info("model loaded")
        for address in self.addresses:
            log.info("listening on %s", address)
            # the wording of older versions, which programs that start llama-server wait for
            log.info("server is listening on %s - starting the main loop", address)

    def _end(self, http: HttpServer, engine: EngineControl) -> None:
        log.info("cleaning up before exit...")
        http.stop()
        engine.stop()
        has_ended = engine.join(None if self.is_ready.is_set() else LOADING_GRACE_S)
        self.left_native_running = not has_ended or self._fetching.is_alive()
        http.join()


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code; for `--help` and its like llama.cpp's parser ends the process."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    signals = Signals()
    try:
        config = cli.parse(arguments, os.environ)
        vertex = VertexRoutes.from_environment(os.environ)
    except (cli.OptionError, VertexError) as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    if cli.wants_help(config.llama_argv):
        print(help_text(), end="", flush=True)

    # here and not above: `--preempt-*` mistakes and tests need no compiled module
    from pyggml_server.engine.loop import Engine
    from pyggml_server.native.command_line import CommandLine
    from pyggml_server.native.log import CommonLogHandler, flush_log
    from pyggml_server.native.tools import Tools

    try:
        command_line = CommandLine.parse(config.llama_argv)
        if command_line.settings.has_server_tools and not config.tools_exposed:
            refuse_exposed_tools(command_line.settings.hostnames, command_line.settings.api_keys)
        fetch = _prepare_download(command_line)
        tools = Tools.start(command_line)
    except (UsageError, DownloadError, ExposedToolsError) as refused:
        if str(refused):
            print(refused, file=sys.stderr)
        return 1
    send_log_to(CommonLogHandler(), command_line.settings.verbosity)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings = _with_port_of(vertex, command_line.settings)
    server = Server(
        settings,
        lambda *callbacks: Engine(command_line, config.preempt, *callbacks),
        vertex,
        ChatPage.in_folder(),
        fetch,
        tools,
    )
    signals.watch(server.interrupt)
    code = server.run()
    if tools is not None:
        tools.close()
    flush_log()
    if server.left_native_running:
        # the model still loads, or comes, on a thread that nothing can stop
        os._exit(code)
    return code


def _prepare_download(command_line: CommandLine) -> Callable[[], None] | None:
    """What gets the models' files; None where they are on this machine. Raises DownloadError."""
    from pyggml_server.native.model_files import ModelFiles

    files = ModelFiles(command_line)
    if files.sources.are_files:
        return None
    # here and not above: most starts need no HTTP client
    from pyggml_server.download.fetch import Download

    download = Download(files)
    download.prepare()
    return download.run


def _with_port_of(vertex: VertexRoutes | None, settings: Settings) -> Settings:
    """As in llama-server, Vertex AI's port wins over --port."""
    if vertex is None or vertex.port == settings.port:
        return settings
    log.warning("AIP_HTTP_PORT %d takes the place of port %d", vertex.port, settings.port)
    return replace(settings, port=vertex.port)
