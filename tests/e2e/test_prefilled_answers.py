"""A last message of the assistant's is the beginning of the answer: it is continued and not repeated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.framed import said
from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream

BEGUN = "The three largest seas are the"
ASK = {"role": "user", "content": "Name three seas."}
TEXT = [ASK, {"role": "assistant", "content": BEGUN}]
PARTS = [ASK, {"role": "assistant", "content": [{"type": "text", "text": BEGUN}]}]
GREEDY = {"max_tokens": 6, "temperature": 0}


@pytest.mark.parametrize("messages", [TEXT, PARTS], ids=["text", "parts"])
@pytest.mark.parametrize("fields", [{}, {"continue_final_message": True, "add_generation_prompt": False}], ids=str)
def test_a_chat_continues_its_last_message(
    ours: ServerProcess, messages: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    body = {"messages": messages, **GREEDY, **fields}
    content = ours.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    assert content
    assert not content.startswith(BEGUN[:10])
    assert post_stream(ours, "/v1/chat/completions", body).text == content
    echoed = ours.post("/v1/chat/completions", {**body, "echo": True}).json()["choices"][0]["message"]["content"]
    assert echoed == BEGUN + content
    assert post_stream(ours, "/v1/chat/completions", {**body, "echo": True}).text == echoed


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_the_other_chat_apis_continue_it_too(ours: ServerProcess, path: str) -> None:
    asked: dict[str, Any] = {"messages": TEXT, **GREEDY}
    if path == "/v1/responses":
        asked = {"input": TEXT, "max_output_tokens": 6, "temperature": 0}
    chat = ours.post("/v1/chat/completions", {"messages": TEXT, **GREEDY}).json()
    expected = [("text", chat["choices"][0]["message"]["content"])]
    assert said(ours.post(path, asked).json()) == expected
    assert said(post_stream(ours, path, asked).events) == expected
