"""Forms become JSON, broken ones are refused as llama-server refuses them."""

from __future__ import annotations

import json

import pytest
from pyggml_server.web.form_data import FormError, boundary_of, read_form

from tests.web.form_bodies import BROKEN, FIELD, TYPE, WHOLE, field, form
from tests.web.running import Running, one_error


@pytest.mark.parametrize("what", WHOLE)
def test_a_form_is_an_object_of_its_text_fields(what: str) -> None:
    content_type, body, fields = WHOLE[what]
    boundary = boundary_of(content_type)
    assert boundary is not None
    assert json.loads(read_form(body, boundary).fields) == fields


def test_of_files_with_one_name_the_last_counts() -> None:
    parts = [field("file", content, '; filename="a.wav"') for content in (b"first", b"\xff\r\n")]
    read = read_form(form(*parts, field("file", b"a text")), b"XX")
    assert read.files == {b"file": b"\xff\r\n"}
    assert json.loads(read.fields) == {"file": "a text"}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_no_form(what: str) -> None:
    content_type, body = BROKEN[what]
    with pytest.raises(FormError):
        read_form(body, boundary_of(content_type) or b"")


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "multipart/mixed; boundary=XX", "Multipart/Form-Data"]
)
def test_other_types_are_no_forms(content_type: str) -> None:
    assert boundary_of(content_type) is None


def test_a_form_is_a_body_like_any_other(server: Running) -> None:
    assert server.post("/tokenize", data=FIELD, headers={"Content-Type": TYPE}).json() == {"tokens": [1, 2]}


@pytest.mark.parametrize(
    "path", ["/completion", "/tokenize", "/slots/0?action=erase", "/v1/streams/lookup", "/v1/audio/transcriptions"]
)
def test_what_is_no_form_is_refused_without_a_word(server: Running, path: str) -> None:
    response = server.post(path, data=b"x", headers={"Content-Type": "multipart/form-data"})
    assert (response.status_code, response.content) == (400, b"")
    assert "content-type" not in response.headers
    assert server.engine.inbound.empty()


def test_a_field_that_is_no_text_is_refused(server: Running) -> None:
    response = server.post("/tokenize", data=form(field("content", b"\xff")), headers={"Content-Type": TYPE})
    code, kind, message = one_error(response)
    assert (code, kind) == (500, "server_error")
    assert message.startswith("a form field is not UTF-8: ")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_compressed_body_is_refused(server: Running, coding: str) -> None:
    response = server.post("/tokenize", data=b'{"content":"a"}', headers={"Content-Encoding": coding})
    assert (response.status_code, response.content) == (415, b"")


def test_a_coding_that_is_none_is_not_looked_at(server: Running) -> None:
    response = server.post("/tokenize", data=b'{"content":"a"}', headers={"Content-Encoding": "identity"})
    assert response.status_code == 200
