"""Methods, addresses, headers and the shape of messages: each gets llama-server's status, headers and body."""

from __future__ import annotations

import pytest

from tests.docs.documents import code_spans, section, tables, text_of
from tests.e2e.program import ServerProcess
from tests.e2e.raw_http import reply_to, request

ORIGIN = {"Origin": "http://web.example"}
METHODS = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"]
OURS_ALONE = {"/pool", "/pool.json", "/sw.js"}
# their bodies have what differs on purpose, or the moment
NOT_THE_SAME = {"/metrics", "/slots"}
TOKENIZE = b'{"content":"a b"}'


def documented_paths() -> list[str]:
    """Every address of the API that the reference names."""
    spans = [
        span
        for table in tables(section(text_of("docs/reference.md"), "Endpoints"))
        for row in table[1:]
        for span in code_spans(row[0])
    ]
    paths = dict.fromkeys(span.partition(" ")[2].replace("{id_slot}", "0") for span in spans)
    return [path for path in paths if path not in OURS_ALONE]


def assert_same_reply(ours: ServerProcess, stock: ServerProcess, sent: bytes) -> None:
    assert reply_to(ours, sent) == reply_to(stock, sent)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("path", documented_paths())
def test_a_method_of_an_address(ours: ServerProcess, stock: ServerProcess, path: str, method: str) -> None:
    if path in NOT_THE_SAME and method in ("GET", "HEAD"):
        pytest.skip("not the same on purpose")
    assert_same_reply(ours, stock, request(method, path, ORIGIN))


@pytest.mark.parametrize("body", [None, b"", b"{", b"\xff", b'{"a":1}{"a":1}', b"[" * 400 + b"]" * 400], ids=repr)
@pytest.mark.parametrize("path", [path for path in documented_paths() if "/streams/" not in path])
def test_a_body_that_is_none(ours: ServerProcess, stock: ServerProcess, path: str, body: bytes | None) -> None:
    """What llama-server calls its own fault (500) is the body's here (400), with the same words."""
    sent = request("POST", path, body=body)
    mine, theirs = reply_to(ours, sent), reply_to(stock, sent)
    if theirs.status == 500:
        assert mine.status == 400
        assert mine.body["error"]["message"] == theirs.body["error"]["message"]
    else:
        assert mine == theirs


@pytest.mark.parametrize(
    "target",
    [
        "/nope",
        "/health/",
        "//health",
        "/./health",
        "/HEALTH",
        "/%68ealth",
        "/health%20",
        "/health;a",
        "/health?",
        "/health?a=b&a=c",
        "/health?" + "a" * 30_000,
        "/v1//models",
        "/v1/models/x",
        "/v2/models",
        "/props/",
        "/completion/",
        "/%",
        "/%zz",
        "/%ff",
        "/a%00b",
        "/" + "a" * 9000,
        "/models/load",
        "*",
        "http://test/health",
    ],
    ids=lambda target: target[:30],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_an_address_that_is_odd(ours: ServerProcess, stock: ServerProcess, target: str, method: str) -> None:
    assert_same_reply(ours, stock, request(method, target, ORIGIN))


def test_an_address_outside_ascii_is_refused_here_only(ours: ServerProcess, stock: ServerProcess) -> None:
    sent = request("GET", "/health?a=ü", ORIGIN)
    assert (reply_to(ours, sent).status, reply_to(stock, sent).status) == (400, 200)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": ""},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Accept": "text/xml"},
        {"Accept-Encoding": "gzip, br"},
        {"Expect": "something"},
        {"Authorization": "Bearer none"},
        {"Range": "bytes=0-3"},
        {"If-None-Match": "*"},
        {"Origin": "null"},
        {"Origin": "é"},
        {"X-Empty": ""},
        {"X-Long": "a" * 8000},
        {f"X-{i}": "a" for i in range(90)},
        {"Connection": "Upgrade, close", "Upgrade": "h2c"},
    ],
    ids=lambda headers: str(headers)[:40],
)
def test_headers_that_change_nothing_or_something(
    ours: ServerProcess, stock: ServerProcess, headers: dict[str, str]
) -> None:
    assert_same_reply(ours, stock, request("POST", "/tokenize", headers, TOKENIZE))


@pytest.mark.parametrize(
    "sent",
    [
        request("POST", "/tokenize", None, TOKENIZE, "HTTP/1.0"),
        request("POST", "/tokenize", {"Transfer-Encoding": "chunked"}, b'5\r\n{"con\r\nc\r\ntent":"a b"}\r\n0\r\n\r\n'),
        request(
            "POST", "/tokenize", {"Transfer-Encoding": "chunked"}, b"11;a=b\r\n" + TOKENIZE + b"\r\n0\r\nX: y\r\n\r\n"
        ),
        request("GET", "/health", None, b"a body"),
        request("DELETE", "/v1/stream?conv_id=nobody", None, b"a body"),
    ],
    ids=["1.0", "in chunks", "in chunks with extensions", "GET", "DELETE"],
)
def test_the_shape_of_a_message(ours: ServerProcess, stock: ServerProcess, sent: bytes) -> None:
    assert_same_reply(ours, stock, sent)


def test_a_connection_stays_open_as_long(ours: ServerProcess, stock: ServerProcess) -> None:
    sent = request("GET", "/health", {"Connection": "keep-alive"})
    for server in (ours, stock):
        # only llama-server counts the requests too
        assert reply_to(server, sent).headers["keep-alive"].split(", ")[0] == "timeout=5"
