"""Reading a request's body: JSON or a form, within llama-server's limit of size and a limit of our own on nesting.

llama.cpp walks JSON (schemas, message content) by recursion: a body nested deeply enough overflows the stack, which
would end the whole server with everybody's requests.
"""

from __future__ import annotations

import json
import re

import anyio.to_thread
from starlette.requests import Request

from pyggml_server.errors import RequestRefusedError, error_object
from pyggml_server.web.form_data import boundary_of, read_form

MAX_BODY_BYTES = 100 * 1024 * 1024
MAX_NESTING = 500
_STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


CODINGS = frozenset({"gzip", "deflate", "br", "zstd"})  # any other name is taken for a misuse of the header


class CodingError(Exception):
    """The body is compressed: llama-server answers 415 without a body."""


async def read_body(request: Request) -> bytes:
    """The whole body, as JSON if it is a form. Raises FormError, RequestRefusedError (400) when llama.cpp would recurse
    too deeply, and what `read_bytes` raises."""
    body, _ = await read_upload(request)
    return body


async def read_upload(request: Request) -> tuple[bytes, bytes | None]:
    """The whole body as JSON, and the file `file` of a form, if it has one. Raises what `read_body` raises."""
    body = await read_bytes(request)
    return await anyio.to_thread.run_sync(_checked, body, boundary_of(request.headers.get("content-type", "")))


async def read_bytes(request: Request) -> bytearray:
    """The whole body as it came. Raises RequestRefusedError (413 above 100 MiB), CodingError, ClientDisconnect."""
    if request.headers.get("content-encoding", "").lower() in CODINGS:
        raise CodingError
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            message = f"the request body is larger than {MAX_BODY_BYTES} bytes"
            error = {"code": 413, "message": message, "type": "invalid_request_error"}
            raise RequestRefusedError(413, json.dumps(error).encode())
    return body


def _checked(body: bytes | bytearray, boundary: bytes | None) -> tuple[bytes, bytes | None]:
    file = None
    if boundary is not None:
        try:
            form = read_form(body, boundary)
            body, file = form.fields, form.files.get(b"file")
        except UnicodeDecodeError as error:
            raise RequestRefusedError(*error_object(f"a form field is not UTF-8: {error}", "server_error")) from error
    if is_too_deep(body):
        message = f"the request body is nested more than {MAX_NESTING} levels deep"
        raise RequestRefusedError(*error_object(message, "invalid_request_error"))
    return bytes(body), file


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
