"""A choice of tools that names a function, in each API: that one is called, or the request refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.program import ServerProcess
from tests.e2e.rain import ASK, CITY, MESSAGE_TOOL, TOOL, begun


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        ("/v1/chat/completions", {"type": "function", "function": {"name": "snow"}}),
        ("/v1/chat/completions", {"type": "function"}),
        ("/v1/chat/completions", {"type": "custom"}),
        ("/v1/responses", {"type": "function", "name": "snow"}),
        ("/v1/messages", {"type": "tool", "name": "snow"}),
    ],
    ids=str,
)
def test_a_choice_that_names_no_function_of_the_request_is_refused(
    qwen: ServerProcess, path: str, choice: dict[str, Any]
) -> None:
    tool = {"type": "function", "function": {"name": "rain", "parameters": CITY}}
    tools = {"/v1/chat/completions": tool, "/v1/responses": TOOL, "/v1/messages": MESSAGE_TOOL}[path]
    body = {"messages": [ASK], "input": [ASK], "max_tokens": 3, "tools": [tools], "tool_choice": choice}
    response = qwen.post(path, body)
    assert response.status_code == 400
    assert "tool_choice" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_choice_that_names_a_function_has_it_called(qwen: ServerProcess, path: str) -> None:
    chat_tool = {"type": "function", "function": {"name": "rain", "parameters": CITY}}
    other = {"type": "function", "function": {"name": "snow", "parameters": CITY}}
    messages = begun("<tool_call>")
    body: dict[str, Any] = {"temperature": 0, "max_tokens": 60}
    if path == "/v1/chat/completions":
        choice: dict[str, Any] = {"type": "function", "function": {"name": "rain"}}
        answer = qwen.post(path, {**body, "messages": messages, "tools": [other, chat_tool], "tool_choice": choice})
        names = [call["function"]["name"] for call in answer.json()["choices"][0]["message"]["tool_calls"]]
    elif path == "/v1/responses":
        choice, tools = {"type": "function", "name": "rain"}, [{**TOOL, "name": "snow"}, TOOL]
        answer = qwen.post(path, {**body, "input": messages, "tools": tools, "tool_choice": choice})
        names = [item["name"] for item in answer.json()["output"] if item["type"] == "function_call"]
    else:
        choice, tools = {"type": "tool", "name": "rain"}, [{**MESSAGE_TOOL, "name": "snow"}, MESSAGE_TOOL]
        answer = qwen.post(path, {**body, "messages": messages, "tools": tools, "tool_choice": choice})
        names = [block["name"] for block in answer.json()["content"] if block["type"] == "tool_use"]
    assert set(names) == {"rain"}
