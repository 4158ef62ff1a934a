"""uvicorn on a thread of its own: start, stop and join from other threads."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import anyio
import uvicorn

from pyggml_server.web.application import create_application
from pyggml_server.web.gate import KEEP_ALIVE_S
from pyggml_server.web.listen import ListenError, Listeners, SetupError, uses_tls
from pyggml_server.web.service import Service
from pyggml_server.web.vertex import VertexError

SHUTDOWN_GRACE_S = 5
TLS_GOODBYE_S = 0.5  # how long a closing TLS connection may wait for the client's answer, which idle clients never give


class HttpServer:
    """Serves one service on sockets that already listen. `on_ended` is called on the server's thread at its end."""

    def __init__(self, service: Service, listeners: Listeners, on_ended: Callable[[], None]) -> None:
        """Raises SetupError for a TLS file that cannot be loaded, a missing folder of --path, a predict route that is
        taken."""
        self._service = service
        self._listeners = listeners
        self._on_ended = on_ended
        self._accepting = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._uvicorn = _UvicornServer(_uvicorn_config(service), self._note_accepting)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread and wait until it accepts connections. Raises ListenError if it ends instead."""
        self._thread.start()
        self._accepting.wait()
        if self._loop is None:
            raise ListenError("the HTTP server ended before it accepted connections (see its log line above)")

    def stop(self) -> None:
        """Ask for the end: no new connections, running requests end as cancelled. Any thread; idempotent."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._stop_on_loop)
        except RuntimeError:
            # the loop is closed already
            return

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread's end; whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._uvicorn.run(sockets=self._listeners.sockets)
        finally:
            self._listeners.close()
            self._accepting.set()
            self._on_ended()

    def _note_accepting(self) -> None:
        self._service.mailbox.bind()
        self._loop = asyncio.get_running_loop()
        self._accepting.set()

    def _stop_on_loop(self) -> None:
        self._service.stop()
        self._uvicorn.should_exit = True


class _UvicornServer(uvicorn.Server):
    """uvicorn, telling when it accepts connections, and not held up at its end by silent TLS clients."""

    def __init__(self, config: uvicorn.Config, on_accepting: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_accepting = on_accepting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        anyio.get_cancelled_exc_class()  # has anyio import its backend: else the first request would wait for that
        await super().startup(sockets)
        self._on_accepting()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        goodbyes = asyncio.ensure_future(self._abort_unanswered_goodbyes())
        await super().shutdown(sockets)
        goodbyes.cancel()

    async def _abort_unanswered_goodbyes(self) -> None:
        while self.config.is_ssl:
            await asyncio.sleep(TLS_GOODBYE_S)
            for connection in list(self.server_state.connections):
                if connection.transport.is_closing():
                    connection.transport.abort()


def _uvicorn_config(service: Service) -> uvicorn.Config:
    settings = service.settings
    try:
        config = uvicorn.Config(
            create_application(service),
            # one implementation of each, so that every installation behaves alike
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("Server", "llama.cpp")],
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
            ssl_keyfile=settings.ssl_key_file if uses_tls(settings) else None,
            ssl_certfile=settings.ssl_cert_file if uses_tls(settings) else None,
        )
        config.load()
    except OSError as error:  # ssl.SSLError is one too
        files = f"{settings.ssl_key_file} and {settings.ssl_cert_file}"
        remedy = "--ssl-key-file and --ssl-cert-file take PEM files"
        raise SetupError(f"couldn't load the TLS key and certificate {files}: {error}; {remedy}") from error
    except VertexError as error:
        raise SetupError(str(error)) from error
    except RuntimeError as error:
        raise SetupError(f"static assets path not found: {settings.public_path}") from error
    return config
