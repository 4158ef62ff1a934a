"""A whole server in this process: real sockets and uvicorn, fake engine and translation."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator, Mapping

import requests
from pyggml_server.app import Server
from pyggml_server.web.chat_page import ChatPage
from pyggml_server.web.ports import ToolsPort
from pyggml_server.web.priority import Priorities
from pyggml_server.web.vertex import VertexRoutes

from tests.web.fakes import PATIENCE_S, FakeEngine, FakeSettings, engine_factory


class Running:
    """A started server: its engine, its address, and small ways to talk to it."""

    def __init__(
        self,
        settings: FakeSettings,
        is_loaded: bool,
        vertex: VertexRoutes | None = None,
        chat_page: ChatPage | None = None,
        tools: ToolsPort | None = None,
        priorities: Priorities | None = None,
        drain_s: float = 0.0,
    ) -> None:
        made: queue.SimpleQueue[FakeEngine] = queue.SimpleQueue()
        self.server = Server(
            settings, engine_factory(made), vertex, chat_page, tools=tools, priorities=priorities, drain_s=drain_s
        )
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.engine = made.get(timeout=PATIENCE_S)
        assert self.engine.started.wait(PATIENCE_S)
        self.url = self.server.addresses[0]
        if is_loaded:
            self.finish_loading()

    def finish_loading(self) -> None:
        """The engine loads its model, and the server notices."""
        self.engine.finish_loading()
        assert self.server.is_ready.wait(PATIENCE_S)

    def get(self, path: str, **options: object) -> requests.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: object) -> requests.Response:
        return self.request("POST", path, **options)

    def request(self, method: str, path: str, **options: object) -> requests.Response:
        return requests.request(method, self.url + path, timeout=PATIENCE_S, **options)  # type: ignore[arg-type]

    def posting(self, path: str, body: str) -> Posting:
        """A request under way on another thread; its response comes when it is complete."""
        return Posting(self, path, body, stream=False)

    def posting_stream(
        self, body: str, path: str = "/v1/completions", headers: Mapping[str, str] | None = None
    ) -> Posting:
        """A request under way on another thread; its response comes with its headers."""
        return Posting(self, path, body, stream=True, headers=headers)

    def raw_post(self, path: str, body: str, headers: Mapping[str, str] | None = None) -> socket.socket:
        """A connection on which a POST has been sent and nothing been read."""
        connection = self.raw_connection()
        fields = {"Host": "test", "Content-Length": len(body), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        return connection

    def raw_connection(self) -> socket.socket:
        """A connection on which nothing has been sent."""
        return socket.create_connection(("127.0.0.1", int(self.url.rsplit(":", 1)[1])), PATIENCE_S)

    def end(self) -> int:
        """Interrupt the server and wait for its exit code."""
        self.server.interrupt()
        return self.wait()

    def wait(self) -> int:
        """Wait for the server to end."""
        self._thread.join(PATIENCE_S)
        assert self.exit_code is not None, "the server did not end"
        return self.exit_code

    def _run(self) -> None:
        self.exit_code = self.server.run()


class Posting:
    """A POST on a thread of its own; `response` waits for it."""

    def __init__(
        self, running: Running, path: str, body: str | bytes, *, stream: bool, headers: Mapping[str, str] | None = None
    ) -> None:
        self._responses: queue.SimpleQueue[requests.Response] = queue.SimpleQueue()

        def post() -> None:
            self._responses.put(running.post(path, data=body, stream=stream, headers=headers))

        threading.Thread(target=post, daemon=True).start()

    def response(self) -> requests.Response:
        return self._responses.get(timeout=PATIENCE_S)


@contextlib.contextmanager
def running(
    settings: FakeSettings | None = None,
    *,
    is_loaded: bool = True,
    vertex: VertexRoutes | None = None,
    chat_page: ChatPage | None = None,
    tools: ToolsPort | None = None,
    priorities: Priorities | None = None,
    drain_s: float = 0.0,
) -> Iterator[Running]:
    """A server that is ended after the test, whatever happens in it."""
    server = Running(settings or FakeSettings(), is_loaded, vertex, chat_page, tools, priorities, drain_s)
    try:
        yield server
    finally:
        server.end()


def one_error(response: requests.Response) -> tuple[int, str, str]:
    """(code, type, message) of an error body, which must agree with the response's status."""
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"code", "message", "type"}
    assert error["code"] == response.status_code
    return error["code"], error["type"], error["message"]
