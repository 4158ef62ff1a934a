"""Servers on loopback that look like the hub, the host its files are on, a registry of containers, and a proxy.

They speak TLS with certificates of an authority of their own, whose file `SSL_CERT_FILE` takes. What they are asked is
in `requests`; how they misbehave is set on them before.
"""

from __future__ import annotations

import hashlib
import json
import re
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_" + "x" * 34
PIECE_BYTES = 1 << 16
POLL_S = 0.01  # how soon a server notices that it is to stop


@dataclass(frozen=True)
class Request:
    """What a server was asked."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class Answer:
    """What it answers: a file in ranges, or a body with a status."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_file: bool = False


def json_answer(value: object, status: int = 200, **headers: str) -> Answer:
    fields = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(json.dumps(value).encode(), status, {"Content-Type": "application/json", **fields})


def file_answer(content: bytes, etag: str = "") -> Answer:
    return Answer(content, headers={"ETag": etag or f'"{sha256(content)}"'}, is_file=True)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Site:
    """One server. `answer` decides; of the next files it sends `cut_after` bytes before it hangs up."""

    def __init__(
        self, answer: Callable[[Request], Answer], authority: trustme.CA | None, host: str = "localhost"
    ) -> None:
        """Without an authority it speaks plain HTTP."""
        self.requests: list[Request] = []
        self.cut_after: list[int] = []
        self.on_cut: Callable[[], None] = lambda: None
        self.answer = answer
        context = None
        if authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
        self._server = _SiteServer(self, context)
        self.url = f"{'http' if context is None else 'https'}://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self, method: str) -> list[str]:
        return [request.path for request in self.requests if request.method == method]


class _SiteServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, site: Site, context: ssl.SSLContext | None) -> None:
        self.site = site
        self._context = context
        super().__init__(("127.0.0.1", 0), _SiteHandler)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        if self._context is None:
            return connection, address
        # the handshake is the handler's: here it would keep all others waiting
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_: object) -> None:
        """Clients that do not know the authority leave in mid-handshake."""


class _SiteHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _SiteServer

    def do_GET(self) -> None:
        site = self.server.site
        request = Request(self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
        site.requests.append(request)
        answer = site.answer(request)
        begin, body, status, headers = 0, answer.body, answer.status, dict(answer.headers)
        if answer.is_file:
            headers["Accept-Ranges"] = "bytes"
            wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
            begin = int(wanted[1]) if wanted else 0
            if wanted and begin >= len(body):
                status, headers["Content-Range"], body, begin = 416, f"bytes */{len(body)}", b"", 0
            elif wanted:
                status, headers["Content-Range"] = 206, f"bytes {begin}-{len(body) - 1}/{len(body)}"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body) - begin)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._send(body[begin:], site if answer.is_file else None)

    do_HEAD = do_GET  # noqa: N815

    def _send(self, body: bytes, site: Site | None) -> None:
        if site is None or not site.cut_after:
            self.wfile.write(body)
            return
        self.wfile.write(body[: site.cut_after.pop(0)])
        self.wfile.flush()
        site.on_cut()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass
class Hub:
    """Repositories and loose files. Large files are on another host, which must not see the user's token."""

    authority: trustme.CA | None
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    loose: dict[str, Answer] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    status: int = 0  # of every answer, if it is set

    def __post_init__(self) -> None:
        self.site = Site(self._answer, self.authority)
        self.files = Site(self._answer_file, self.authority, host="127.0.0.1")

    def stop(self) -> None:
        self.site.stop()
        self.files.stop()

    def _answer(self, request: Request) -> Answer:
        path = request.path.partition("?")[0]
        if self.status:
            return json_answer({"error": "the hub is out of order"}, self.status)
        if path in self.loose:
            return self.loose[path]
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)/(refs|tree|resolve)(?:/(.*))?", path)
        content = self.repositories.get(found[1]) if found else None
        if not found or content is None:
            return json_answer({"error": "Repository not found"}, 404)
        if found[1] in self.gated and request.headers.get("authorization") != f"Bearer {TOKEN}":
            return json_answer({"error": f"Access to model {found[1]} is restricted"}, 401)
        if found[2] == "refs":
            return json_answer({"branches": [{"name": "main", "targetCommit": COMMIT}]})
        if found[2] == "tree":
            return json_answer([self._listed(name, body) for name, body in content.items()])
        name = found[3].partition("/")[2]
        if name not in content:
            return json_answer({"error": "Entry not found"}, 404)
        return Answer(status=302, headers={"Location": f"{self.files.url}/{found[1]}/{name}"})

    def _listed(self, name: str, body: bytes) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(body), "oid": "0" * 40, "lfs": {"oid": sha256(body)}}

    def _answer_file(self, request: Request) -> Answer:
        user, repository, name = request.path.partition("?")[0].removeprefix("/").split("/", 2)
        body = self.repositories[f"{user}/{repository}"][name]
        return file_answer(b"damaged!" + body[8:] if name in self.damaged else body)


@dataclass
class Registry:
    """A registry of containers: it gives nothing without a token, which it gives to anybody."""

    authority: trustme.CA
    models: dict[str, bytes] = field(default_factory=dict)  # by repository:tag

    def __post_init__(self) -> None:
        self.site = Site(self._answer, self.authority)
        self.host = self.site.url.removeprefix("https://")

    def stop(self) -> None:
        self.site.stop()

    def _answer(self, request: Request) -> Answer:
        path, _, query = request.path.partition("?")
        if path == "/token":
            assert "scope=repository%3A" in query
            return json_answer({"token": "for-anybody"})
        if request.headers.get("authorization") != "Bearer for-anybody":
            repository = re.fullmatch(r"/v2/(.+)/(?:manifests|blobs)/.*", path)
            scope = f"repository:{repository[1]}:pull" if repository else ""
            challenge = f'Bearer realm="{self.site.url}/token",service="look-alike",scope="{scope}"'
            return json_answer({"errors": [{"message": "token, please"}]}, 401, WWW_Authenticate=challenge)
        if found := re.fullmatch(r"/v2/(.+)/manifests/(.+)", path):
            return self._manifest(f"{found[1]}:{found[2]}")
        for body in self.models.values():
            if path.endswith(f"/blobs/sha256:{sha256(body)}"):
                return file_answer(body, '"of the host behind it"')
        return json_answer({"errors": [{"message": "blob unknown"}]}, 404)

    def _manifest(self, name: str) -> Answer:
        if name not in self.models:
            return json_answer({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, 404)
        layers = [
            {"mediaType": "application/vnd.docker.ai.license", "digest": "sha256:" + "1" * 64},
            {"mediaType": "application/vnd.docker.ai.gguf.v3", "digest": f"sha256:{sha256(self.models[name])}"},
        ]
        return json_answer({"schemaVersion": 2, "layers": layers})


class Proxy:
    """Makes tunnels (CONNECT), and remembers to where."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                proxy.targets.append(self.path)
                host, _, port = self.path.partition(":")
                with socket.create_connection((host, int(port))) as there:
                    self.send_response(200)
                    self.end_headers()
                    _pump(self.connection, there)
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _pump(here: socket.socket, there: socket.socket) -> None:
    while True:
        for readable in select.select([here, there], [], [])[0]:
            try:
                data = readable.recv(PIECE_BYTES)
            except ConnectionError:
                return
            if not data:
                return
            (there if readable is here else here).sendall(data)


@contextmanager
def hub(authority: trustme.CA) -> Iterator[Hub]:
    """A hub without repositories."""
    started = Hub(authority)
    try:
        yield started
    finally:
        started.stop()


def authority_file(authority: trustme.CA, folder: Path) -> Path:
    """What SSL_CERT_FILE takes."""
    path = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    return path
