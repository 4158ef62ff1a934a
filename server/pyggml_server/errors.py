"""Exceptions that web, engine and native share, and llama-server's error objects. Pure data: any thread."""

from __future__ import annotations

import json

STATUS_BY_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "server_error": 500,
    "not_supported_error": 501,
    "unavailable_error": 503,
    "exceed_context_size_error": 400,
}


class UsageError(Exception):
    """The command line was refused; llama.cpp's parser has already said why on stderr when the message is empty."""


class NotLoadedError(RuntimeError):
    """The model was freed because it was idle; it is loaded again for the next request."""


class LoadError(Exception):
    """The model or its context could not be created; the message names the file or value and the remedy."""


class RequestRefusedError(Exception):
    """A request that never becomes a task: an HTTP status and llama-server's JSON error object, and when the client may
    try again, where that is all that is wrong."""

    def __init__(self, status: int, error: bytes, retry_after_s: int | None = None) -> None:
        super().__init__(error.decode("utf-8", "replace"))
        self.status = status
        self.error = error
        self.retry_after_s = retry_after_s


def error_object(message: str, error_type: str, **extra: int) -> tuple[int, bytes]:
    """HTTP status and the JSON object that llama-server puts under "error" for this type of error.

    Raises KeyError for a type that llama-server does not have.
    """
    status = STATUS_BY_TYPE[error_type]
    body = {"code": status, "message": message, "type": error_type, **extra}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return status, text.encode("utf-8", "replace")
