"""A forwarder on loopback: plain HTTP for llama.cpp's downloader, TLS to the servers that were named to it.

Only who knows the random prefix gets through, and only to those servers: no other process borrows the user's token.
It has threads of its own, one per connection.
"""

from __future__ import annotations

import logging
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote

import httpx2

from pyggml_server.download.answers import shown
from pyggml_server.download.relay import Outside, Route, relay

log = logging.getLogger(__name__)

POLL_S = 0.05  # how soon it notices that it is to stop


class Forwarder:
    """Serves from `with` to its end. `add` before the address that it gives is used."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._secret = secrets.token_urlsafe(24)
        self._routes: dict[str, Route] = {}
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._serve, name="downloads forwarder", daemon=True)

    def add(self, name: str, route: Route) -> str:
        """The address, with a slash at its end, that stands for `route.base`."""
        self._routes[name] = route
        return self._address(name)

    def reveal(self, text: str) -> str:
        """`text` with the true addresses in place of the forwarder's."""
        for name, route in self._routes.items():
            text = text.replace(self._address(name), shown(httpx2.URL(route.base)))
        return text

    def handle(self, exchange: BaseHTTPRequestHandler) -> None:
        """Answer one request. A forwarder thread."""
        _, secret, name, *rest = [*exchange.path.split("/", 3), "", ""]
        route = self._routes.get(name)
        is_known = secrets.compare_digest(secret.encode(), self._secret.encode())
        if not is_known or route is None or not _may_ask(route, rest[0]):
            exchange.send_error(404)
            return
        relay(exchange, route, rest[0], self._outside)

    def _serve(self) -> None:
        self._server.serve_forever(POLL_S)

    def _address(self, name: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{self._secret}/{name}/"

    def __enter__(self) -> Forwarder:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, forwarder: Forwarder) -> None:
        self.forwarder = forwarder
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """The other side may leave in mid-answer; it tells of what it misses itself."""
        if not isinstance(sys.exception(), ConnectionError):
            log.exception("a download failed in the forwarder")


class _Handler(BaseHTTPRequestHandler):
    """The names of its methods are those that the base class calls."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self.server.forwarder.handle(self)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nothing: the addresses hold the secret."""


def _may_ask(route: Route, rest: str) -> bool:
    path = unquote(rest.partition("?")[0])
    return ".." not in path.split("/") and not (route.is_folder and "/" in path)
