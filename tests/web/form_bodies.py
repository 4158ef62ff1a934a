"""Bodies of forms, whole and broken, for the tests of the parser and for those that compare it with llama-server."""

from __future__ import annotations

BOUNDARY = "XX"
TYPE = "multipart/form-data; boundary=XX"


def field(name: str, text: bytes, more: str = "") -> tuple[str, bytes]:
    """Headers and content of one text field."""
    return f'Content-Disposition: form-data; name="{name}"{more}', text


def form(*parts: tuple[str, bytes], boundary: str = BOUNDARY, end: str = "--\r\n", before: bytes = b"") -> bytes:
    """The body of a form."""
    body = before
    for headers, content in parts:
        body += f"--{boundary}\r\n{headers}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}{end}".encode()


FIELD = form(field("content", b"a b"))

WHOLE: dict[str, tuple[str, bytes, dict[str, object]]] = {
    "a field": (TYPE, FIELD, {"content": "a b"}),
    "two fields": (TYPE, form(field("content", b"a b"), field("x", b"1")), {"content": "a b", "x": "1"}),
    "a name twice": (TYPE, form(field("content", b"a"), field("content", b"b")), {"content": ["a", "b"]}),
    "a name three times": (TYPE, form(*[field("content", b"a")] * 3), {"content": ["a", "a", "a"]}),
    "a file": (TYPE, form(field("content", b"a", '; filename="f"')), {}),
    "a file whose name is encoded": (TYPE, form(field("content", b"a", "; filename*=UTF-8''a")), {}),
    "a file without a name": (TYPE, form(field("content", b"a", '; filename=""')), {"content": "a"}),
    "a field with a type": (
        TYPE,
        form(field("content", b"a b", "\r\nContent-Type: text/plain")),
        {"content": "a b"},
    ),
    "a part that does not say": (TYPE, form(("Content-Type: text/plain", b"a")), {"": "a"}),
    "an attachment": (TYPE, form(('Content-Disposition: attachment; name="content"', b"a")), {"": "a"}),
    "a name without quotes": (TYPE, form(("Content-Disposition: form-data; name=content", b"a")), {"content": "a"}),
    "a header in small letters": (TYPE, form(('content-disposition:form-data;name="content"', b"a")), {"content": "a"}),
    "a semicolon in the name": (TYPE, form(field("a;b", b"a")), {"a;b": "a"}),
    "a boundary in quotes": ('multipart/form-data; boundary="XX"', FIELD, {"content": "a b"}),
    "a long boundary": (
        "multipart/form-data; boundary=" + "b" * 70,
        form(field("content", b"a"), boundary="b" * 70),
        {"content": "a"},
    ),
    "no line end after it": (TYPE, form(field("content", b"a"), end="--"), {"content": "a"}),
    "a text before it": (TYPE, form(field("content", b"a"), before=b"hello\r\n"), {"content": "a"}),
    "a text after it": (TYPE, FIELD + b"more", {"content": "a b"}),
    "an empty field": (TYPE, form(field("content", b"")), {"content": ""}),
    "line ends in a field": (
        TYPE,
        form(field("content", b"a\r\nb\r\n--X\r\n")),
        {"content": "a\r\nb\r\n--X\r\n"},
    ),
}
BROKEN: dict[str, tuple[str, bytes]] = {
    "no boundary": ("multipart/form-data", FIELD),
    "an empty boundary": ("multipart/form-data; boundary=", FIELD),
    "a boundary in capitals": ("multipart/form-data; Boundary=XX", FIELD),
    "a boundary that is too long": (
        "multipart/form-data; boundary=" + "b" * 71,
        form(field("content", b"a"), boundary="b" * 71),
    ),
    "another boundary": ("multipart/form-data; boundary=YY", FIELD),
    "a field without a name": (TYPE, form(('Content-Disposition: form-data; x="y"', b"a"))),
    "a file name in an unknown encoding": (TYPE, form(field("content", b"a", "; filename*=latin''a"))),
    "a line that is no header": (TYPE, form(field("content", b"a", "\r\nnocolon"))),
    "too many headers": (TYPE, form(field("content", b"a", "\r\nX: y" * 100))),
    "no end": (TYPE, form(field("content", b"a"), end="")),
    "half an end": (TYPE, form(field("content", b"a"), end="-")),
    "a wrong end": (TYPE, form(field("content", b"a"), end="zz")),
    "only an end": (TYPE, b"--XX--\r\n"),
    "nothing": (TYPE, b""),
    "too many parts": (TYPE, form(*[field("x", b"1")] * 1025)),
}
