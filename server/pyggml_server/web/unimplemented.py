"""llama-server's routes for what no model and no flag switches on here. They answer as llama-server does without it,
instead of a 404 that would read like a wrong address."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pyggml_server.web.body import read_body
from pyggml_server.web.errors import refusal

# what llama-server answers with 403 unless a flag switches it on
TOOLS = "/tools"
CORS_PROXY = "/cors-proxy"
_DISABLED_BODY = b'{"error":{"message":"this feature is disabled","type":"feature_disabled"}}'

# what llama-server answers with 501 unless the model takes audio: none that is served here does
NEED_AUDIO = (
    ("POST", "/v1/audio/transcriptions"),
    ("POST", "/audio/transcriptions"),
)


async def refuse_audio(request: Request) -> Response:
    """As llama-server answers with a model for text, after it has read the form."""
    await read_body(request)
    return refusal("The current model does not support audio input.", "not_supported_error")


async def refuse_disabled(_request: Request) -> Response:
    """As llama-server answers a feature that its flags leave off."""
    return Response(_DISABLED_BODY, status_code=403, media_type="application/json; charset=utf-8")
