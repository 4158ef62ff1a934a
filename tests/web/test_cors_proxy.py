"""/cors-proxy: what goes to the other server, what comes back, and what is refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.web.fakes import PATIENCE_S, FakeSettings
from tests.web.running import Running, one_error, running


class Target(ThreadingHTTPServer):
    """The other server: notes what it is asked, and answers by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.may_go_on = threading.Event()
        self.client_left = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Target

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        if self.path == "/moved":
            self.send_response(302)
            # the same machine under another name: another origin
            self.send_header("Location", f"http://localhost:{self.server.server_port}/there")
            self.end_headers()
        elif self.path == "/slow":
            self._trickle()
        else:
            self.send_response(201)
            for name, value in (("X-Mine", "yes"), ("Set-Cookie", "a=b"), ("Access-Control-Allow-Origin", "evil")):
                self.send_header(name, value)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>answer")

    do_POST = do_GET  # noqa: N815

    def _trickle(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"first")
        self.wfile.flush()
        assert self.server.may_go_on.wait(PATIENCE_S)
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"x" * 65536)
        self.server.client_left.set()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def target() -> Iterator[Target]:
    server = Target()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server() -> Iterator[Running]:
    with running(FakeSettings(ui_mcp_proxy=True, api_keys=("key",))) as started:
        yield started


KEY = {"Authorization": "Bearer key", "Cookie": "mine=1", "X-Api-Key": "key"}


def test_only_headers_that_are_named_for_it_reach_the_other_server(server: Running, target: Target) -> None:
    named = {"X-Llama-Server-Proxy-Header-Authorization": "Bearer theirs", "X-LLAMA-Server-Proxy-Header-accept": "a/b"}
    server.get("/cors-proxy", params={"url": target.url + "/a?b=c d"}, headers={**KEY, **named})
    ((method, path, headers, body),) = target.asked
    assert (method, path, body) == ("GET", "/a?b=c%20d", b"")
    assert (headers["authorization"], headers["accept"]) == ("Bearer theirs", "a/b")
    assert not {"cookie", "x-api-key"} & headers.keys()
    assert headers["host"] == target.url.removeprefix("http://")


def test_the_answer_comes_back_with_its_status_and_without_what_is_not_for_this_server(
    server: Running, target: Target
) -> None:
    response = server.get("/cors-proxy", params={"url": target.url}, headers={**KEY, "Origin": "http://web.example"})
    assert (response.status_code, response.content) == (201, b"<p>answer")
    assert (response.headers["x-mine"], response.headers["content-type"]) == ("yes", "text/html")
    assert "set-cookie" not in response.headers
    assert response.headers["access-control-allow-origin"] == "http://web.example"
    assert response.headers["content-security-policy"] == "sandbox"


def test_a_body_goes_on_as_it_is(server: Running, target: Target) -> None:
    sent = {"X-Llama-Server-Proxy-Header-Content-Type": "application/json", "Content-Type": "text/plain"}
    server.post("/cors-proxy", params={"url": target.url}, data=b'{"a": 1}', headers={**KEY, **sent})
    server.post("/cors-proxy", params={"url": target.url}, files={"f": ("n.txt", b"text")}, headers=KEY)
    (_, _, headers, body), (_, _, form_headers, form) = target.asked
    assert (headers["content-type"], body) == ("application/json", b'{"a": 1}')
    boundary = form_headers["content-type"].partition("boundary=")[2]
    assert form.startswith(b"--" + boundary.encode())


def test_a_redirect_is_followed_and_takes_no_key_to_another_host(server: Running, target: Target) -> None:
    named = {"X-Llama-Server-Proxy-Header-Authorization": "Bearer theirs"}
    response = server.get("/cors-proxy", params={"url": target.url + "/moved"}, headers={**KEY, **named})
    assert response.status_code == 201
    (_, _, first, _), (_, path, second, _) = target.asked
    assert path == "/there"
    assert "authorization" in first
    assert "authorization" not in second


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "invalid URL: no scheme"),
        ("example.com", "invalid URL: no scheme"),
        ("file:///etc/passwd", "unsupported URL scheme: file"),
        ("ftp://example.com/", "unsupported URL scheme: ftp"),
        ("http://user:secret@127.0.0.1/", "authentication in target URL is not supported"),
        ("http://user@127.0.0.1/", "authentication in target URL is not supported"),
        ("http:///path", "invalid target URL: missing host"),
    ],
)
def test_an_address_that_is_none_is_refused(server: Running, url: str, message: str) -> None:
    assert one_error(server.get("/cors-proxy", params={"url": url}, headers=KEY)) == (500, "server_error", message)


def test_a_server_that_cannot_be_reached_is_an_error_that_says_so(server: Running, target: Target) -> None:
    closed = target.url
    target.server_close()
    code, kind, message = one_error(server.get("/cors-proxy", params={"url": closed}, headers=KEY))
    assert (code, kind) == (500, "server_error")
    assert message.startswith("proxy error: ")


def test_an_answer_streams_and_ends_when_the_client_leaves(server: Running, target: Target) -> None:
    response = server.get("/cors-proxy", params={"url": target.url + "/slow"}, headers=KEY, stream=True)
    assert next(response.iter_content(5)) == b"first"
    response.close()
    target.may_go_on.set()
    assert target.client_left.wait(PATIENCE_S)


def test_it_needs_the_key_and_the_flag(server: Running) -> None:
    assert one_error(server.get("/cors-proxy?url=http://127.0.0.1/"))[0] == 401
    with running() as off:
        for method in ("GET", "POST"):
            response = off.request(method, "/cors-proxy?url=http://127.0.0.1/")
            assert (response.status_code, response.json()["error"]["type"]) == (403, "feature_disabled")
