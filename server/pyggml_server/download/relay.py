"""One request of llama.cpp's downloader passed on over TLS, and the answer passed back. A forwarder thread each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

import httpx2

from pyggml_server.download import answers
from pyggml_server.download.answers import Failures
from pyggml_server.download.partial_files import PartialFiles
from pyggml_server.download.progress import Progress

PASSED_ON = ("accept", "authorization", "range", "user-agent")
PASSED_BACK = ("accept-ranges", "content-encoding", "content-length", "content-range", "content-type", "etag")
# Addresses that are signed for GET alone answer HEAD so.
HEAD_REFUSED = (403, 405, 501)
N_BYTES_OF_ERROR = 1 << 16
FILE_SUFFIX = ".gguf"


@dataclass(frozen=True, slots=True)
class Route:
    """What is behind one prefix of the forwarder.

    base           where its requests go; what follows the prefix is put behind it.
    takes_token    the host may see the user's token for the hub.
    is_folder      only names directly below `base` may be asked for.
    auth           how its server lets us in, where it has a way of its own.
    version        of what is there, where that is known without asking; it takes the place of the server's ETag.
    partial_files  of downloads whose names do not tell their content.
    """

    base: str
    takes_token: bool
    is_folder: bool = True
    auth: httpx2.Auth | None = None
    version: str = ""
    partial_files: PartialFiles | None = None


# (address, bytes so far, bytes in all or 0)
TellProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Outside:
    """The way out, what failed on it, and who is told how far files are."""

    client: httpx2.Client
    failures: Failures
    tell_progress: TellProgress | None = None


def relay(exchange: BaseHTTPRequestHandler, route: Route, rest: str, outside: Outside) -> None:
    """Answer `exchange` with what the server behind `route` answers to a request for `rest`.

    What cannot be had becomes a 502 whose body says why, or a connection that ends early; both are in the failures.
    """
    client = outside.client
    headers = {name: value for name in PASSED_ON if (value := exchange.headers.get(name))}
    if not route.takes_token or route.auth is not None:
        headers.pop("authorization", None)
    url = route.base + rest
    request: httpx2.Request | None = None
    try:
        request = client.build_request(exchange.command, url, headers=headers)
        response = client.send(request, auth=route.auth, stream=True)
        if exchange.command == "HEAD" and response.status_code in HEAD_REFUSED:
            response.close()
            request = client.build_request("GET", url, headers=headers)
            response = client.send(request, auth=route.auth, stream=True)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        failure = answers.of_error(request, url, error)
        outside.failures.add(failure)
        _send(exchange, 502, {"content-type": "application/json"}, json.dumps({"error": str(failure)}).encode())
        return
    with closing(response):
        _pass_back(exchange, route, rest, response, outside)


def _pass_back(
    exchange: BaseHTTPRequestHandler, route: Route, rest: str, response: httpx2.Response, outside: Outside
) -> None:
    fields = {name: value for name in PASSED_BACK if (value := response.headers.get(name)) is not None}
    if route.version:
        fields["etag"] = f'"{route.version}"'
    status = response.status_code
    if _has_all_of_it(exchange, response):
        _send(exchange, 206, {}, b"")
    elif status >= 400:
        body = next(response.iter_raw(N_BYTES_OF_ERROR), b"")
        outside.failures.add(answers.of_response(response, body))
        fields["content-length"] = str(len(body))
        _send(exchange, status, fields, body)
    elif exchange.command == "HEAD":
        if route.partial_files is not None:
            version = fields.get("etag") or response.headers.get("last-modified") or ""
            route.partial_files.begin(_name(rest), version)
        _send(exchange, status, fields)
    else:
        _stream(exchange, _name(rest), fields, response, outside)


def _has_all_of_it(exchange: BaseHTTPRequestHandler, response: httpx2.Response) -> bool:
    """Whether it asked for what follows the last byte: a download that was whole before its end was noticed."""
    wanted = re.fullmatch(r"bytes=(\d+)-", exchange.headers.get("range") or "")
    told = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("content-range") or "")
    return bool(response.status_code == 416 and wanted and told and int(wanted[1]) == int(told[1]))


def _stream(
    exchange: BaseHTTPRequestHandler, name: str, fields: dict[str, str], response: httpx2.Response, outside: Outside
) -> None:
    """Pass a body on as it comes. One that breaks off ends the connection, so that the other side notices."""
    is_chunked = "content-length" not in fields
    _send(exchange, response.status_code, {**fields, "transfer-encoding": "chunked"} if is_chunked else fields)
    progress = _progress(name, response, outside) if name.endswith(FILE_SUFFIX) else None
    try:
        for piece in response.iter_raw():
            exchange.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
            if progress is not None:
                progress.advance(len(piece))
        if is_chunked:
            exchange.wfile.write(b"0\r\n\r\n")
    except httpx2.HTTPError as error:
        outside.failures.add(answers.of_error(response.request, str(response.request.url), error))
        exchange.close_connection = True


def _progress(name: str, response: httpx2.Response, outside: Outside) -> Progress:
    n_bytes = int(response.headers.get("content-length") or 0)
    begun = re.match(r"bytes (\d+)-", response.headers.get("content-range") or "")
    n_bytes_before = int(begun[1]) if begun and response.status_code == 206 else 0
    n_bytes_in_all = n_bytes + n_bytes_before if n_bytes else 0
    tell, url = outside.tell_progress, answers.shown(response.url)
    observe = None if tell is None else lambda n_done: tell(url, n_done, n_bytes_in_all)
    return Progress(name, response.url.host, n_bytes_in_all, n_bytes_before, observe)


def _send(exchange: BaseHTTPRequestHandler, status: int, fields: dict[str, str], body: bytes | None = None) -> None:
    """Status and headers, and a body that is known."""
    exchange.send_response_only(status)
    if body is not None:
        fields = {**fields, "content-length": str(len(body))}
    for name, value in fields.items():
        exchange.send_header(name, value)
    exchange.end_headers()
    if body and exchange.command != "HEAD":
        exchange.wfile.write(body)


def _name(rest: str) -> str:
    return rest.partition("?")[0].rpartition("/")[2]
