"""Tool calls and reasoning, streamed or not, in all three chat APIs: llama-server's events, with several templates.

A grammar makes a small model write what it never would. Reasoning has one from the request. For a call it is the
template's, which allows any text before the call: so the answer is begun with the words that open one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.comparing import ask, unmeant_differences
from tests.e2e.conftest import StartServer
from tests.e2e.framed import told
from tests.e2e.program import REPOSITORY, ServerProcess
from tests.e2e.sse import post_stream

pytestmark = pytest.mark.slow

Pair = tuple[ServerProcess, ServerProcess]
Request = tuple[str, dict[str, Any]]

TEMPLATES = REPOSITORY / "vendor/ggml/llama.cpp/models/templates"
# of each way to write a call down one template, and how a call begins there
OPENINGS = {
    "Qwen-Qwen3-0.6B": "<tool_call>",
    "Qwen3-Coder": "<tool_call>",
    "meta-llama-Llama-3.1-8B-Instruct": "{",
    "mistralai-Mistral-Nemo-Instruct-2407": "[TOOL_CALLS]",
}
# of thinkers, how an answer with reasoning begins: the first one's prompt has opened the block already
THINKERS = {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "", "GLM-4.6": "<think>"}

ASK = {"role": "user", "content": "Rain in Rome?"}
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
}
TOOLS = [{"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": WEATHER}}]
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "rain", "arguments": '{"city": "Rome", "days": 1}'}}
HISTORY = [
    ASK,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "no"},
]
GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 60}
# `echo`: without it the answer does not repeat its beginning here
CHAT = {
    "messages": [ASK],
    "tools": TOOLS,
    "tool_choice": "required",
    "echo": True,
    "reasoning_budget_tokens": 4,
    **GREEDY,
}


def tool_requests(opening: str) -> Iterator[Request]:
    """A call that is forced, one that is not, several, one after an answer; in each API."""
    begun = {"role": "assistant", "content": opening}
    chats: list[dict[str, Any]] = [
        {"messages": [ASK, begun]},
        {"messages": [ASK, begun], "parallel_tool_calls": True},
        {"messages": [ASK, begun], "parse_tool_calls": False},
        {"messages": [ASK, begun], "max_tokens": 20},  # ends in the middle of the call
        {"messages": [ASK, begun], "stream_options": {"include_usage": True}},
        {"messages": [ASK, begun], "n": 2},
        {"messages": [*HISTORY, begun]},
        {"max_tokens": 16},
        {"tool_choice": "auto", "max_tokens": 8},
        {"tool_choice": "none", "max_tokens": 8},
        {"logprobs": True, "top_logprobs": 1, "max_tokens": 8},
    ]
    yield from (("/v1/chat/completions", {**CHAT, **fields}) for fields in chats)
    said = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": opening}]}]
    tool = {"type": "function", "name": "rain", "description": "Weather", "parameters": WEATHER}
    responses = {"input": [ASK], "tools": [tool], "max_output_tokens": 60, "tool_choice": "required", "temperature": 0}
    yield "/v1/responses", {**responses, "input": [ASK, *said]}
    yield "/v1/responses", {**responses, "max_output_tokens": 16, "reasoning_budget_tokens": 4}
    tool = {"name": "rain", "description": "Weather", "input_schema": WEATHER}
    messages = {"tools": [tool], "max_tokens": 60, "tool_choice": {"type": "any"}, "temperature": 0}
    yield "/v1/messages", {**messages, "messages": [ASK, begun]}
    yield "/v1/messages", {**messages, "messages": [ASK], "max_tokens": 16, "reasoning_budget_tokens": 4}


def thought(opening: str) -> str:
    """The grammar of an answer after some reasoning."""
    return f'root ::= "{opening}So.\\n</think>\\n\\nNo rain."'


def reasoning_requests(opening: str) -> Iterator[Request]:
    """Reasoning that ends by itself, by its budget, never or not at all; where the answer shows it; in each API."""
    chat = {"messages": [ASK], **GREEDY}
    grammar = thought(opening)
    chats: list[dict[str, Any]] = [
        {"grammar": grammar},
        *({"grammar": grammar, "reasoning_format": name} for name in ("none", "auto", "deepseek", "deepseek-legacy")),
        {"max_tokens": 6},
        {"reasoning_budget_tokens": 0, "max_tokens": 12},
        {"reasoning_budget_tokens": 3, "max_tokens": 24},
        {"thinking_budget_tokens": 3, "reasoning_budget_message": " Enough.", "max_tokens": 24},
        {"reasoning_effort": "none", "max_tokens": 6},
        {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 6},
        {"grammar": grammar, "stop": ["rain"]},
        {"grammar": grammar, "n": 2},
        {"grammar": grammar, "logprobs": True},
        {"messages": [ASK, {"role": "assistant", "content": "No", "reasoning_content": "Hm."}, ASK], "max_tokens": 4},
    ]
    yield from (("/v1/chat/completions", {**chat, **fields}) for fields in chats)
    yield "/v1/responses", {"input": "Rain?", "grammar": grammar, "temperature": 0, "max_output_tokens": 30}
    message = {"messages": [ASK], "max_tokens": 30, "temperature": 0}
    yield "/v1/messages", {**message, "grammar": grammar}
    yield "/v1/messages", {**message, "thinking": {"type": "enabled", "budget_tokens": 3}}
    yield "/v1/messages", {**message, "thinking": {"type": "disabled"}, "max_tokens": 6}


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest, start_ours: StartServer, start_stock: StartServer) -> Iterator[Pair]:
    """Ours and stock with the template that the test names."""
    flags = ("-c", "4096", "--chat-template-file", str(TEMPLATES / f"{request.param}.jinja"))
    with ExitStack() as stack:
        yield stack.enter_context(start_ours(*flags)), stack.enter_context(start_stock(*flags))


def found_differences(servers: Pair, requests: Iterator[Request]) -> list[str]:
    """One entry for each request that was answered differently."""
    found = []
    for path, plain in requests:
        for is_streamed in (False, True):
            body = {**plain, "stream": is_streamed}
            ours, stock = (ask(server, "POST", path, body) for server in servers)
            lines = list(unmeant_differences(*(ours, stock) if "chat" in path else (told(ours), told(stock))))
            if lines:
                found.append(f"{path} {body}:\n    " + "\n    ".join(lines[:5]))
    return found


@pytest.mark.parametrize(("servers", "opening"), OPENINGS.items(), ids=OPENINGS, indirect=["servers"])
def test_tool_calls(servers: Pair, opening: str) -> None:
    found = found_differences(servers, tool_requests(opening))
    assert not found, "\n".join(found)
    body = {**CHAT, "messages": [ASK, {"role": "assistant", "content": opening}]}
    deltas = [event["choices"][0]["delta"] for event in post_stream(servers[0], "/v1/chat/completions", body).events]
    parts = [call["function"] for delta in deltas for call in delta.get("tool_calls", [])]
    assert parts[0]["name"] == "rain"
    assert '"city"' in "".join(part.get("arguments", "") for part in parts)


@pytest.mark.parametrize(("servers", "opening"), THINKERS.items(), ids=THINKERS, indirect=["servers"])
def test_reasoning(servers: Pair, opening: str) -> None:
    found = found_differences(servers, reasoning_requests(opening))
    assert not found, "\n".join(found)
    body = {"messages": [ASK], "grammar": thought(opening), **GREEDY}
    deltas = [event["choices"][0]["delta"] for event in post_stream(servers[0], "/v1/chat/completions", body).events]
    told = ["".join(delta.get(key) or "" for delta in deltas).strip() for key in ("reasoning_content", "content")]
    assert told == ["So.", "No rain."]
