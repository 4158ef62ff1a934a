"""HTTP as it is on the wire, for what no client library sends: h11 writes no HTTP/1.0, odd path or chunk extension."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.comparing import normalised
from tests.e2e.program import PATIENCE_S, ServerProcess

# of the connection and of the moment: llama-server's HTTP library and ours send some that the other does not
NOT_COMPARED = frozenset({"date", "content-length", "accept-ranges"})


@dataclass(frozen=True)
class Reply:
    """One response: its headers in small letters, without those of the connection, and its body, as JSON if it is."""

    version: int
    status: int
    headers: dict[str, str]
    body: Any


def request(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    version: str = "HTTP/1.1",
) -> bytes:
    """The bytes of a request after which the connection is closed."""
    fields = {"Host": "test", "Connection": "close"}
    if body is not None and "Transfer-Encoding" not in (headers or {}):
        fields |= {"Content-Length": str(len(body)), "Content-Type": "application/json"}
    lines = [f"{name}: {value}\r\n" for name, value in {**fields, **(headers or {})}.items()]
    return f"{method} {target} {version}\r\n{''.join(lines)}\r\n".encode("latin-1") + (body or b"")


def reply_to(server: ServerProcess, sent: bytes) -> Reply:
    """Send these bytes on a connection of their own and read the first response on it."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), PATIENCE_S) as connection:
        connection.sendall(sent)
        response = HTTPResponse(connection, method=sent.partition(b" ")[0].decode("latin-1"))
        response.begin()
        content = response.read()
    headers = {name.lower(): value for name, value in response.getheaders() if name.lower() not in NOT_COMPARED}
    try:
        body = normalised(json.loads(content))
    except ValueError:
        body = content
    return Reply(response.version, response.status, headers, body)
