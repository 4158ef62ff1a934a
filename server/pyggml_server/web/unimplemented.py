"""llama-server's routes that this version does not have yet. They say so with 501, instead of a 404 that would read
like a wrong address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.web.errors import refusal

# what llama-server answers with 403 unless a flag that is not served here switches it on
DISABLED = (
    ("GET", "/cors-proxy"),
    ("POST", "/cors-proxy"),
    ("GET", "/tools"),
    ("POST", "/tools"),
)
_DISABLED_BODY = b'{"error":{"message":"this feature is disabled","type":"feature_disabled"}}'

UNIMPLEMENTED = (
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/audio/transcriptions"),
)


async def refuse(request: Request) -> Response:
    """Name the route that is missing."""
    message = f"{request.method} {request.url.path} is not implemented in this version of pyggml-server"
    return refusal(message, "not_supported_error")


async def refuse_disabled(_request: Request) -> Response:
    """As llama-server answers a feature that its flags leave off."""
    return Response(_DISABLED_BODY, status_code=403, media_type="application/json; charset=utf-8")
