"""What every request passes before its route: CORS, OPTIONS, loading, API key. Pure ASGI, event loop thread."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pyggml_server.web.api_keys import has_valid_key
from pyggml_server.web.errors import early_refusal
from pyggml_server.web.page import WORKER_PATH
from pyggml_server.web.ports import WebSettings
from pyggml_server.web.service import Service

log = logging.getLogger(__name__)

PUBLIC_PATHS = frozenset({"/health", "/v1/health"})  # exact, without --api-prefix, as in llama-server
# those of a page, with the prefix and without it
PAGE_PATHS = frozenset({"/", "/index.html", WORKER_PATH})
POOL_PATH = "/pool"  # ours, open as the pages are: it has no numbers in it, and a browser cannot send a key
KEEP_ALIVE_S = 5
KEEP_ALIVE = (b"keep-alive", b"timeout=%d" % KEEP_ALIVE_S)  # tells clients until when a connection can be used again
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class Gate:
    """Answers OPTIONS and refusals itself, lets everything else through. Adds the headers that every response has."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        prefix = service.settings.api_prefix
        pages = PAGE_PATHS | (service.chat_page.paths if service.chat_page else frozenset())
        self._paths_while_loading = pages | {prefix + path for path in (POOL_PATH, *pages)}
        self._public_paths = PUBLIC_PATHS | self._paths_while_loading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Other scopes (lifespan) pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(reversed(scope["headers"]))  # of repeated headers the first counts
        added = allow_origin(self._service.settings, headers.get(b"origin", b""))
        if stays_open(scope["http_version"], headers):
            added = [*added, KEEP_ALIVE]

        async def send_with_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *added]
                message = {**message, "headers": [(spelled_as_stock(name), value) for name, value in headers]}
            await send(message)

        answer = self._answer(scope["method"], scope["path"], headers)
        await (answer or self._app)(scope, receive, send_with_more)

    def _answer(self, method: str, path: str, headers: dict[bytes, bytes]) -> Response | None:
        settings = self._service.settings
        if method == "OPTIONS":
            # before the key check: browsers ask without Authorization
            return preflight(settings)
        unavailable = self._service.unavailable
        if unavailable is not None and path not in self._paths_while_loading:
            return early_refusal(unavailable, "unavailable_error")
        if path not in self._public_paths and not has_valid_key(settings.api_keys, headers):
            log.warning("unauthorized: Invalid API Key")
            return early_refusal("Invalid API Key", "authentication_error")
        return None


def stays_open(http_version: str, headers: dict[bytes, bytes]) -> bool:
    """Whether the connection can carry another request after this one."""
    tokens = headers.get(b"connection", b"").lower().split(b",")
    return http_version == "1.1" and b"close" not in [token.strip() for token in tokens]


def spelled_as_stock(name: bytes) -> bytes:
    """The header's name in llama-server's spelling. Names compare without case, but not every client knows that. Those
    that uvicorn looks for, which frame the body, stay as they are."""
    return name if name in FRAMING else b"-".join(part.capitalize() for part in name.split(b"-"))


def preflight(settings: WebSettings) -> Response:
    """The answer to OPTIONS on any path."""
    headers = {
        "content-type": "text/html",
        "access-control-allow-credentials": "true" if settings.cors_credentials else "false",
        "access-control-allow-methods": settings.cors_methods,
        "access-control-allow-headers": settings.cors_headers,
    }
    return Response(b"", headers=headers)


def allow_origin(settings: WebSettings, origin: bytes) -> list[tuple[bytes, bytes]]:
    """The Access-Control-Allow-Origin header, or none, for a request from `origin`."""
    name = b"access-control-allow-origin"
    if settings.cors_credentials and settings.cors_origins == "*":
        # browsers refuse "*" together with credentials, so the origin is named
        return [(name, origin)]
    if settings.cors_origins == "localhost":
        if is_local_origin(origin):
            return [(name, origin)]
        if origin:
            log.warning("(CORS) skip non-localhost origin: %s", origin.decode("latin-1"))
        return []
    return [(name, settings.cors_origins.encode())]


def is_local_origin(origin: bytes) -> bool:
    """Whether the origin is a web page of this machine, at any port. Pages inside of apps have other schemes."""
    try:
        parts = urlsplit(origin.decode("latin-1"))
        _ = parts.port  # raises for what is no number
    except ValueError:
        return False
    if parts.username is not None:
        return False  # no browser's origin names a user
    return parts.scheme in ("http", "https") and parts.hostname in ("localhost", "127.0.0.1", "::1")
