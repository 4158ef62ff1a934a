"""Bodies that are forms, whole and broken, and compressed ones get llama-server's answers."""

from __future__ import annotations

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.program import ServerProcess
from tests.web.form_bodies import BROKEN, TYPE, WHOLE, field, form


@pytest.mark.parametrize("what", WHOLE)
def test_a_form(ours: ServerProcess, stock: ServerProcess, what: str) -> None:
    content_type, body, _ = WHOLE[what]
    assert_same_answer(ours, stock, "POST", "/tokenize", body, headers={"Content-Type": content_type})


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_form(ours: ServerProcess, stock: ServerProcess, what: str) -> None:
    content_type, body = BROKEN[what]
    assert_same_answer(ours, stock, "POST", "/tokenize", body, headers={"Content-Type": content_type})


@pytest.mark.parametrize("content_type", ["multipart/form-data", TYPE])
@pytest.mark.parametrize(
    "path",
    [
        "/completion",
        "/v1/chat/completions",
        "/v1/messages/count_tokens",
        "/v1/audio/transcriptions",
        "/embedding",
        "/slots/0?action=erase",
        "/infill",
    ],
)
def test_a_form_on_any_route(ours: ServerProcess, stock: ServerProcess, path: str, content_type: str) -> None:
    assert_same_answer(ours, stock, "POST", path, form(field("x", b"1")), headers={"Content-Type": content_type})


def test_a_prompt_in_a_form(ours: ServerProcess, stock: ServerProcess) -> None:
    body = form(field("prompt", b"1, 2, 3, 4,"), field("n_predict", b"2"))
    assert_same_answer(ours, stock, "POST", "/completion", body, headers={"Content-Type": TYPE})


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "GZIP", "identity", "utf-8"])
def test_a_body_that_says_how_it_is_coded(ours: ServerProcess, stock: ServerProcess, coding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": coding}
    assert_same_answer(ours, stock, "POST", "/tokenize", b'{"content":"a b"}', headers=headers)


def test_an_url_encoded_body_is_read_as_it_is(ours: ServerProcess, stock: ServerProcess) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert_same_answer(ours, stock, "POST", "/tokenize", b'{"content":"a b"}', headers=headers)
