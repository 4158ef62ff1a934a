"""One run of a server: listening sockets, HTTP server, the models' files, the engine; and the order of start and end.

Main thread. The HTTP server listens before the model is loaded, so that /health answers meanwhile and a busy port
ends the process before the long wait. Only this module knows both the web side and the engine.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pyggml_server.download.ports import DownloadError, PresetRepositoryError
from pyggml_server.messages import Deliver, EnginePort
from pyggml_server.router.child import RouterLink
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.http_server import HttpServer
from pyggml_server.web.listen import ListenError, SetupError, listen
from pyggml_server.web.ports import ToolsPort, TranslatorPort, WebSettings
from pyggml_server.web.priority import Priorities
from pyggml_server.web.service import Backend, Service
from pyggml_server.web.vertex import VertexRoutes

log = logging.getLogger(__name__)

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
class RouterWanted:
    """What -hf names is for a router."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Somebody asked for the end."""


@dataclass(frozen=True, slots=True)
class Drained:
    """After that, the last request has ended."""


Event = Fetched | RouterWanted | Loaded | Ended | Interrupted | Drained


class Server:
    """One run of the server: `run` on one thread, `interrupt` from any thread or a signal handler.

    fetch    gets the models' files before the engine starts, on a thread of its own; raises DownloadError. Nothing
             waits for it at an end that was asked for.
    link     to the router that started this process, if one did.
    drain_s  how long an end that was asked for waits for the requests that run.
    """

    def __init__(
        self,
        settings: WebSettings,
        make_engine: EngineFactory,
        vertex: VertexRoutes | None = None,
        chat_page: ChatPage | None = None,
        fetch: Callable[[], None] | None = None,
        tools: ToolsPort | None = None,
        link: RouterLink | None = None,
        priorities: Priorities | None = None,
        drain_s: float = 0.0,
    ) -> None:
        self._service = Service(settings, vertex, chat_page, tools, priorities)
        self._make_engine = make_engine
        self._fetch = fetch
        self._link = link
        self._drain_s = drain_s
        self._drain_ends_at_s: float | None = None
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._fetching = threading.Thread(target=self._run_fetch, name="downloads", daemon=True)
        self.addresses: tuple[str, ...] = ()
        self.is_ready = threading.Event()
        self.left_native_running = False
        self.wants_router = False

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
        except PresetRepositoryError:
            self._events.put(RouterWanted())
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
            match self._next_event():
                case Fetched():
                    engine.start()
                case Loaded(translator=translator):
                    self._service.open(Backend(engine, translator))
                    if self._link is not None:
                        self._link.tell_ready(translator.models())
                    if not self.is_ready.is_set():  # else it was loaded again
                        self._say_ready()
                    self.is_ready.set()
                case Ended(message=message):
                    log.error("%s", message)
                    log.error("exiting due to %s error", "server" if self.is_ready.is_set() else "model loading")
                    return 1
                case RouterWanted():
                    self.wants_router = True
                    return 0
                case Interrupted() if self._may_drain:
                    self._begin_drain()
                case Interrupted() | Drained():
                    return 0

    def _next_event(self) -> Event:
        """What happened next; at the end of the time for a drain, that it has ended."""
        try:
            return self._events.get(timeout=self._drain_left_s)
        except queue.Empty:
            log.warning("requests still run after %g seconds (--drain-seconds): they end now", self._drain_s)
            return Drained()

    @property
    def _may_drain(self) -> bool:
        """Whether there may be requests to wait for, and nobody has asked for the end before."""
        return self._drain_s > 0 and self.is_ready.is_set() and self._drain_ends_at_s is None

    @property
    def _drain_left_s(self) -> float | None:
        return None if self._drain_ends_at_s is None else max(0.0, self._drain_ends_at_s - time.monotonic())

    def _begin_drain(self) -> None:
        log.info("taking no new requests; those that run have %g seconds to end (--drain-seconds)", self._drain_s)
        self._drain_ends_at_s = time.monotonic() + self._drain_s
        begin = partial(self._service.drain.begin, lambda: self._events.put(Drained()))
        self._service.mailbox.call(begin)

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
