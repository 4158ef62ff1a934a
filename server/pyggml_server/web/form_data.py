"""Bodies of the type multipart/form-data (`curl -F`), which llama-server takes on every route in place of JSON.

Their text fields make an object of strings; a name that comes more than once has the list of its values. Of files with
one name the last counts; only the audio routes look at them. Blocking: worker threads.

This is no general parser: it takes and refuses what llama-server does. python-multipart answers 8 of the 35 forms in
tests/web/form_bodies.py differently: it refuses text before the first part, and takes long or misspelt boundaries, file
names of any encoding, a field that is an attachment, and any number of parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

FORM_TYPE = "multipart/form-data"
MAX_BOUNDARY_CHARS = 70  # as RFC 2046 has it
MAX_HEADERS_PER_PART = 100
MAX_HEADER_BYTES = 8192
MAX_PARTS = 1024
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_DISPOSITION = re.compile(rb"form-data;[ \t]*(.*)", re.IGNORECASE)
_PARAMETER = re.compile(rb'(?:"[^"]*"?|[^";])+')
_UTF8_NAME = re.compile(rb"UTF-8''.", re.IGNORECASE | re.DOTALL)


class FormError(Exception):
    """This is no form: llama-server answers 400 without a body."""


def boundary_of(content_type: str) -> bytes | None:
    """The boundary of a form's parts, or None for any other type. Raises FormError without a usable boundary."""
    media_type, _, parameters = content_type.partition(";")
    if media_type.strip() != FORM_TYPE:
        return None
    boundary = _parameters(parameters.encode("latin-1")).get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_CHARS:
        raise FormError(f"a boundary of {len(boundary)} characters")
    return boundary


@dataclass(frozen=True, slots=True)
class Form:
    """`fields`: the text fields as a JSON object. `files`: what is in the files, by the names of their fields."""

    fields: bytes
    files: dict[bytes, bytes]


def read_form(body: bytes | bytearray, boundary: bytes) -> Form:
    """Raises FormError, and UnicodeDecodeError for a text that is not UTF-8."""
    fields: dict[str, list[str]] = {}
    files: dict[bytes, bytes] = {}
    for n_parts, (headers, content) in enumerate(_parts(body, boundary)):
        if n_parts == MAX_PARTS:
            raise FormError(f"more than {MAX_PARTS} parts")
        name, is_file = _name_of(headers)
        if is_file:
            files[name] = content
        else:
            fields.setdefault(name.decode(), []).append(content.decode())
    texts = {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
    return Form(json.dumps(texts).encode(), files)


def _parts(body: bytes | bytearray, boundary: bytes) -> Iterator[tuple[list[bytes], bytes]]:
    """Header lines and content of each part. What is before the first and after the last does not count."""
    first, between = b"--" + boundary + b"\r\n", b"\r\n--" + boundary
    begin = _found(body, first, 0) + len(first)
    while True:
        headers: list[bytes] = []
        while (end := _found(body, b"\r\n", begin)) != begin:
            headers.append(bytes(body[begin:end]))
            begin = end + 2
        begin += 2
        end = _found(body, between, begin)
        yield headers, bytes(body[begin:end])
        begin = end + len(between) + 2
        match bytes(body[begin - 2 : begin]):
            case b"--":
                return
            case b"\r\n":
                pass
            case _:
                raise FormError("a boundary that ends neither a part nor the form")


def _found(body: bytes | bytearray, wanted: bytes, begin: int) -> int:
    position = body.find(wanted, begin)
    if position < 0:
        raise FormError(f"no {wanted!r} from byte {begin} on")
    return position


def _name_of(headers: list[bytes]) -> tuple[bytes, bool]:
    """The name of a part's field, and whether it is a file. A part that does not say is a text without a name."""
    if len(headers) > MAX_HEADERS_PER_PART:
        raise FormError(f"a part with more than {MAX_HEADERS_PER_PART} headers")
    name, filename = b"", b""
    for header in headers:
        parsed = _HEADER.fullmatch(header)
        if parsed is None or len(header) > MAX_HEADER_BYTES:
            raise FormError(f"{header[:60]!r} is no header")
        disposition = _DISPOSITION.fullmatch(parsed[2])
        if disposition is None or parsed[1].lower() != b"content-disposition":
            continue
        parameters = _parameters(disposition[1])
        if b"name" not in parameters:
            raise FormError("a field without a name")
        encoded = parameters.get(b"filename*")
        if encoded is not None and not _UTF8_NAME.match(encoded):
            raise FormError("a file name in another encoding than UTF-8")
        name, filename = parameters[b"name"], parameters.get(b"filename", b"") or encoded or b""
    return name, bool(filename)


def _parameters(text: bytes) -> dict[bytes, bytes]:
    """`name=value; name="value"`: of a name that comes twice the first counts. In quotes a semicolon is a character."""
    found: dict[bytes, bytes] = {}
    for part in _PARAMETER.findall(text):
        name, _, value = part.partition(b"=")
        name, value = _unquoted(name.strip()), _unquoted(value.strip())
        if name:
            found.setdefault(name, value)
    return found


def _unquoted(text: bytes) -> bytes:
    return text[1:-1] if len(text) >= 2 and text[:1] == text[-1:] == b'"' else text
