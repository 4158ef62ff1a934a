"""GET and POST /cors-proxy (--ui-mcp-proxy): fetches from another server what a page may not fetch itself.

Event loop thread. Nothing of the client's request goes on but the body and the headers that are named for it, so no key
and no cookie of this server leaves it. What comes back cannot run as a page of this server.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pyggml_server.web.body import read_bytes
from pyggml_server.web.disconnect import while_connected
from pyggml_server.web.errors import refusal, refused

log = logging.getLogger(__name__)

PREFIX = "x-llama-server-proxy-header-"
TIMEOUT_S = 600.0
SCHEMES = ("http", "https")
# told by the client library itself, or of the connection and not of the request
NOT_SENT = frozenset({"accept-encoding", "connection", "content-length", "host", "transfer-encoding"})
# of the other server's connection, or what this server says itself
NOT_RETURNED = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "set-cookie", "transfer-encoding"}
)
OWN_HEADERS = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}


class CorsProxyRoute:
    """ASGI endpoint."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; a client that disconnects ends the one to the other server too."""
        request = Request(scope, receive)
        url = target_of(request.query_params.get("url", ""))
        body = await read_bytes(request)
        await while_connected(receive, _relay(request, url, bytes(body), scope, receive, send))


def target_of(text: str) -> httpx2.URL:
    """The address to fetch. Raises RequestRefusedError with llama-server's words where it is none."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        raise refused("invalid URL: no scheme", "server_error")
    if scheme not in SCHEMES:
        raise refused(f"unsupported URL scheme: {scheme}", "server_error")
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise refused(f"invalid URL: {error}", "server_error") from None
    if url.userinfo:
        raise refused("authentication in target URL is not supported", "server_error")
    if not url.host:
        raise refused("invalid target URL: missing host", "server_error")
    return url


def sent_headers(request: Request) -> dict[str, str]:
    """The headers for the other server: those named for it, and the type of a form, which has its boundary."""
    headers = {"accept-encoding": "identity", "user-agent": "pyggml-server"}
    for name, value in request.headers.items():
        name = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        if name and name not in NOT_SENT:
            headers[name] = value
    own_type = request.headers.get("content-type", "")
    if own_type.startswith("multipart/form-data"):
        headers["content-type"] = own_type
    return headers


def returned_headers(response: httpx2.Response) -> dict[str, str]:
    """The headers for the client."""
    passed = {
        name: value
        for name, value in response.headers.items()
        if name not in NOT_RETURNED and not name.startswith("access-control-")
    }
    return {**passed, **OWN_HEADERS}


async def _relay(request: Request, url: httpx2.URL, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    log.info("proxying %s request to %s", request.method, url.copy_with(query=None, fragment=None))
    async with AsyncExitStack() as owned:
        try:
            client = await owned.enter_async_context(httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True))
            asked = client.build_request(request.method, url, headers=sent_headers(request), content=body)
            response = await client.send(asked, stream=True)
            owned.push_async_callback(response.aclose)
        except httpx2.HTTPError as error:
            log.error("http client error: %s", error or type(error).__name__)
            answer: Response = refusal(f"proxy error: {error or type(error).__name__}", "server_error")
        else:
            answer = StreamingResponse(response.aiter_raw(), response.status_code, returned_headers(response))
        await answer(scope, receive, send)
