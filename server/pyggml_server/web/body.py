"""Reading a request's body, within llama-server's limit."""

from __future__ import annotations

import json

from starlette.requests import Request

from pyggml_server.native.errors import RequestRefusedError

MAX_BODY_BYTES = 100 * 1024 * 1024


async def read_body(request: Request) -> bytes:
    """The whole body. Raises RequestRefusedError (413) above 100 MiB, ClientDisconnect when the client leaves."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            message = f"the request body is larger than {MAX_BODY_BYTES} bytes"
            error = {"code": 413, "message": message, "type": "invalid_request_error"}
            raise RequestRefusedError(413, json.dumps(error).encode())
    return bytes(body)
