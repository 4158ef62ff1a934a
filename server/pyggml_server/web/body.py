"""Reading a request's body, within llama-server's limit of size and a limit of our own on nesting.

llama.cpp walks JSON by recursion (schemas, message content): a body nested deeply enough overflows the stack, which
would end the whole server with everybody's requests.
"""

from __future__ import annotations

import json
import re

from starlette.requests import Request

from pyggml_server.native.errors import RequestRefusedError, error_object

MAX_BODY_BYTES = 100 * 1024 * 1024
MAX_NESTING = 500
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


async def read_body(request: Request) -> bytes:
    """The whole body. Raises RequestRefusedError (413 above 100 MiB, 400 when its JSON is nested too deeply),
    ClientDisconnect when the client leaves."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            message = f"the request body is larger than {MAX_BODY_BYTES} bytes"
            error = {"code": 413, "message": message, "type": "invalid_request_error"}
            raise RequestRefusedError(413, json.dumps(error).encode())
    if is_too_deep(body):
        message = f"the request body is nested more than {MAX_NESTING} levels deep"
        raise RequestRefusedError(*error_object(message, "invalid_request_error"))
    return bytes(body)


def is_too_deep(body: bytes | bytearray) -> bool:
    """Whether arrays and objects are nested beyond MAX_NESTING. Brackets in strings do not count."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        token = match[0]
        if token in (b"[", b"{"):
            depth += 1
            if depth > MAX_NESTING:
                return True
        elif token in (b"]", b"}"):
            depth -= 1
    return False
