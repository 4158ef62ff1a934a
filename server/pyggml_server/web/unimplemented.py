"""llama-server's routes that no flag switches on here. They answer as llama-server does without it, instead of a 404
that would read like a wrong address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

# what llama-server answers with 403 unless a flag switches it on
TOOLS = "/tools"
CORS_PROXY = "/cors-proxy"
_DISABLED_BODY = b'{"error":{"message":"this feature is disabled","type":"feature_disabled"}}'


async def refuse_disabled(_request: Request) -> Response:
    """As llama-server answers a feature that its flags leave off."""
    return Response(_DISABLED_BODY, status_code=403, media_type="application/json; charset=utf-8")
