"""The class of a request: `priority` in its body, or a header that a proxy sets. Lower goes first. Worker threads."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.datastructures import Headers

from pyggml_server.errors import RequestRefusedError
from pyggml_server.web.api_keys import key_of
from pyggml_server.web.errors import refused

HEADER = "x-request-priority"
MOST = 1_000_000


class Priorities:
    """The classes that requests get.

    best    the lowest that a request may claim (`--priority-best`).
    by_key  classes of API keys: what their requests get that claim none, and the lowest that these may claim.
    """

    def __init__(self, best: int = 0, by_key: Mapping[bytes, int] | None = None) -> None:
        self._best = best
        self._by_key = by_key or {}

    def of(self, headers: Headers, body: bytes) -> int:
        """The header counts for more than the body: it is the proxy's word.

        Raises RequestRefusedError (400) for what is no whole number within a million. Parses the body only if it may
        name one.
        """
        own = self._by_key.get(key_of(dict(reversed(headers.raw))))
        claimed = _claimed_in_header(headers)
        if claimed is None:
            claimed = _claimed_in_body(body)
        best = self._best if own is None else own
        return max(best, claimed if claimed is not None else own or 0)


def _claimed_in_header(headers: Headers) -> int | None:
    text = headers.get(HEADER)
    if text is None:
        return None
    try:
        return _checked(int(text), f"the header {HEADER}")
    except ValueError:
        raise _refused(f"the header {HEADER} is {text!r}: give a whole number, lower goes first") from None


def _claimed_in_body(body: bytes) -> int | None:
    if b'"priority"' not in body:
        return None
    try:
        fields = json.loads(body)
    except ValueError:
        return None  # llama.cpp's parser will say what is wrong with it
    value = fields.get("priority") if isinstance(fields, dict) else None
    if value is None:
        return None
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value[:20])  # the text of a form's field
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refused(f"'priority' is {json.dumps(value)}: give a whole number, lower goes first")
    return _checked(value, "'priority'")


def _checked(value: int, name: str) -> int:
    if abs(value) > MOST:
        raise _refused(f"{name} is {value}: give a whole number between -{MOST} and {MOST}")
    return value


def _refused(message: str) -> RequestRefusedError:
    return refused(message, "invalid_request_error")
