"""Error bodies and JSON bodies as llama-server sends them."""

from __future__ import annotations

import json

from starlette.responses import Response

from pyggml_server.errors import STATUS_BY_TYPE, RequestRefusedError, error_object

JSON_TYPE = "application/json; charset=utf-8"


def json_text(value: object) -> str:
    """The value as llama-server writes it: no spaces, and text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_response(body: bytes, status: int = 200) -> Response:
    """A whole JSON body with llama-server's content type."""
    return Response(body, status_code=status, headers={"content-type": JSON_TYPE})


def error_response(status: int, error: bytes, retry_after_s: int | None = None) -> Response:
    """`error` is the inner JSON object: code, message, type. `retry_after_s` becomes the header Retry-After."""
    response = json_response(b'{"error":' + error + b"}", status)
    if retry_after_s is not None:
        response.headers["retry-after"] = str(retry_after_s)
    return response


def refusal(message: str, kind: str, retry_after_s: int | None = None) -> Response:
    """The response for an error of our own; `kind` is one of llama-server's."""
    return error_response(*error_object(message, kind), retry_after_s)


def early_refusal(message: str, kind: str) -> Response:
    """A refusal before or instead of a route: there llama-server's HTTP layer writes the keys in another order."""
    status = STATUS_BY_TYPE[kind]
    error = {"message": message, "type": kind, "code": status}
    return json_response(json_text({"error": error}).encode(), status)


def refused(message: str, kind: str, retry_after_s: int | None = None) -> RequestRefusedError:
    """The same as an exception, for code that cannot answer by itself."""
    return RequestRefusedError(*error_object(message, kind), retry_after_s)
