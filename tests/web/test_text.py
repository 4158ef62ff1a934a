"""Tokenize, detokenize, apply-template and counting."""

from __future__ import annotations

import pytest

from tests.web.running import Running, one_error


def test_bodies_go_to_the_translation_and_its_answers_back(server: Running) -> None:
    assert server.post("/tokenize", json={"content": "hi"}).text == '{"tokens":[1,2]}'
    assert server.post("/detokenize", data="[1,2]").text == '{"content":[1,2]}'
    assert server.post("/apply-template", data='"x"').text == '{"prompt":"x"}'


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/chat/completions/input_tokens", "OAI_CHAT"),
        ("/v1/chat/completions/input_tokens", "OAI_CHAT"),
        ("/responses/input_tokens", "OAI_RESPONSES"),
        ("/v1/responses/input_tokens", "OAI_RESPONSES"),
        ("/v1/messages/count_tokens", "ANTHROPIC"),
    ],
)
def test_each_api_has_its_own_way_to_count_tokens(server: Running, path: str, kind: str) -> None:
    assert server.post(path, data="12345").json() == {"kind": kind, "input_tokens": 5}


def test_a_refusal_is_answered_with_its_status_and_error(server: Running) -> None:
    assert one_error(server.post("/tokenize", data="{}")) == (400, "invalid_request_error", "no content")


def test_the_event_loop_never_translates(server: Running) -> None:
    server.post("/tokenize", json={"content": "hi"})
    server.get("/props")
    server.get("/models")
    assert server.engine.translator.thread_names
    assert "http" not in server.engine.translator.thread_names
