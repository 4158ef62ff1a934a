"""What every route works with: the settings, the mailbox, and, once the model is loaded, engine and translator.

`open` and `stop` may be called on any thread; the rest is for the event loop thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio
import anyio.to_thread

from pyggml_server.messages import EnginePort, Wake
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.drain import Drain
from pyggml_server.web.errors import refused
from pyggml_server.web.mailbox import STOPPING_MESSAGE, Mailbox
from pyggml_server.web.ports import ToolsPort, TranslatorPort, WebSettings
from pyggml_server.web.priority import Priorities
from pyggml_server.web.remote_media import RemoteMedia
from pyggml_server.web.stream_store import StreamStore
from pyggml_server.web.vertex import VertexRoutes

LOADING_MESSAGE = "Loading model"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model: who computes, and who translates for it."""

    engine: EnginePort
    translator: TranslatorPort


class Service:
    """The state of the web side, shared by all requests."""

    def __init__(
        self,
        settings: WebSettings,
        vertex: VertexRoutes | None = None,
        chat_page: ChatPage | None = None,
        tools: ToolsPort | None = None,
        priorities: Priorities | None = None,
    ) -> None:
        self.settings = settings
        self.vertex = vertex
        self.chat_page = chat_page
        self.tools = tools
        self.priorities = priorities or Priorities()
        self.mailbox = Mailbox()
        self.streams = StreamStore()
        self.drain = Drain()
        self.remote_media = RemoteMedia()
        self._backend: Backend | None = None
        self._unavailable: str | None = LOADING_MESSAGE
        self._limiter: anyio.CapacityLimiter | None = None
        self._opened = asyncio.Event()

    def open(self, backend: Backend) -> None:
        """The model is loaded: answer every route from now on."""
        self._backend = backend
        backend.engine.open_door()
        self.mailbox.call(self._note_opened)
        if self._unavailable == LOADING_MESSAGE:
            self._unavailable = None

    def stop(self) -> None:
        """Refuse new requests and end the running ones. Event loop thread."""
        self._unavailable = STOPPING_MESSAGE
        self._note_opened()
        self.mailbox.stop()
        if self.tools is not None:
            self.tools.stop()

    @property
    def unavailable(self) -> str | None:
        """Why no route answers now, or None."""
        return self._unavailable

    @property
    def backend(self) -> Backend:
        """Engine and translator. Raises RequestRefusedError while the model loads."""
        if self._backend is None:
            raise refused(LOADING_MESSAGE, "unavailable_error")
        return self._backend

    @asynccontextmanager
    async def awake(self) -> AsyncIterator[None]:
        """The model is loaded, and stays so inside. Waits for it where it was freed (--sleep-idle-seconds).

        Raises RequestRefusedError while it loads for the first time, and once the server stops.
        """
        engine = self.backend.engine
        while True:
            opened = self._opened  # taken before the door is tried: who opens it later sets this one
            if engine.try_enter():
                break
            if self._unavailable is not None:
                raise refused(self._unavailable, "unavailable_error")
            engine.submit(Wake())
            await opened.wait()
        try:
            yield
        finally:
            engine.leave()

    def _note_opened(self) -> None:
        self._opened.set()
        self._opened = asyncio.Event()

    async def with_media(self, body: bytes) -> bytes:
        """The body of a request with the images and sounds in it that it names by address, if the model takes any.

        Raises RequestRefusedError.
        """
        return await self.remote_media.fetch_into(body) if self.backend.translator.has_media else body

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run native work on a worker thread. A call that has begun is waited for, also when the request is cancelled:
        what it works on is freed after it, never under it."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(n_worker_threads(self.settings))
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)


def n_worker_threads(settings: WebSettings) -> int:
    """As llama-server sizes its HTTP threads: --threads-http, else a few more than slots or one less than cores."""
    if settings.n_threads_http >= 1:
        return settings.n_threads_http
    return max(settings.n_parallel + 4, (os.cpu_count() or 1) - 1)
