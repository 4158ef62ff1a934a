"""Messages and their streams are what the anthropic package says that they are: each event by itself, and its place."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.e2e.program import PATIENCE_S, ServerProcess
from tests.e2e.rain import ASK, CALLS, MESSAGE_TOOL, STORY, begun, both
from tests.e2e.sse import post_stream

MESSAGE_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"max_tokens": 5},
    "a stop sequence": {"max_tokens": 40, "stop_sequences": ["!", "?", "."]},
    "nothing": {"max_tokens": 0},
}


def check_message_stream(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Asserts the same of Messages; returns what the blocks were when they began."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events:
        MESSAGE_EVENT.validate_python(event)
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                is_open = True
                blocks.append(event["content_block"])
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
            case "content_block_stop":
                assert is_open
                is_open = False
    assert not is_open
    names = [event["type"] for event in events]
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
    return blocks


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_and_its_stream_are_what_the_package_expects(ours: ServerProcess, name: str) -> None:
    body = {"messages": [ASK], "temperature": 0, **MESSAGES[name]}
    events = post_stream(ours, "/v1/messages", body).events
    check_message_stream(events)
    whole = Message.model_validate(ours.post("/v1/messages", body).json(), strict=True)
    delta = next(event for event in events if event["type"] == "message_delta")["delta"]
    assert (whole.stop_reason, whole.stop_sequence) == (delta["stop_reason"], delta["stop_sequence"])
    if name == "a stop sequence":
        assert whole.stop_reason == "stop_sequence"
        assert whole.stop_sequence in ("!", "?", ".")
    else:
        assert (whole.stop_reason, whole.stop_sequence) == ("max_tokens", None)


@pytest.mark.parametrize("name", CALLS)
def test_blocks_of_a_message_do_not_overlap(qwen: ServerProcess, name: str) -> None:
    choice = {"type": "any"}
    asked: dict[str, Any] = {"messages": begun(CALLS[name][0]), "tools": [MESSAGE_TOOL], "tool_choice": choice}
    body = {**asked, "max_tokens": 60, "temperature": 0}
    blocks = check_message_stream(post_stream(qwen, "/v1/messages", body).events)
    assert "tool_use" in [block["type"] for block in blocks]
    whole = Message.model_validate(qwen.post("/v1/messages", body).json(), strict=True)
    assert [block.type for block in whole.content] == [block["type"] for block in blocks]
    assert whole.stop_reason in ("tool_use", "max_tokens")


def test_a_message_with_thinking_is_what_the_package_expects(thinker: ServerProcess) -> None:
    body = {"messages": [ASK], "max_tokens": 12, "thinking": {"type": "enabled", "budget_tokens": 3}, "temperature": 0}
    blocks = check_message_stream(post_stream(thinker, "/v1/messages", body).events)
    assert blocks[0]["type"] == "thinking"
    Message.model_validate(thinker.post("/v1/messages", body).json(), strict=True)


def test_anthropics_own_accumulator_takes_the_stream(qwen: ServerProcess) -> None:
    with anthropic.Anthropic(base_url=qwen.url, api_key="none", timeout=PATIENCE_S, max_retries=0) as client:
        messages: Any = begun("<tool_call>")
        tools: Any = [MESSAGE_TOOL]
        asked: dict[str, Any] = {"messages": messages, "tools": tools, "max_tokens": 60, "model": "any"}
        with client.messages.stream(**asked, tool_choice={"type": "any"}, extra_body={"temperature": 0}) as stream:
            message = stream.get_final_message()
    calls = [block for block in message.content if block.type == "tool_use"]
    assert calls[0].name == "rain"


def test_an_error_in_a_stream_of_messages_is_raised_by_the_package(tight: ServerProcess) -> None:
    body = {"messages": STORY, "max_tokens": 200, "temperature": 0}
    error = both(tight, "/v1/messages", body)[-1]
    assert (error["type"], error["error"]["type"]) == ("error", "api_error")

    def run() -> None:
        with anthropic.Anthropic(base_url=tight.url, api_key="none", timeout=PATIENCE_S, max_retries=0) as client:
            messages: Any = STORY
            stream = client.messages.create(model="any", messages=messages, max_tokens=200, stream=True)
            for _ in stream:
                pass

    with ThreadPoolExecutor(2) as threads, pytest.raises(anthropic.APIStatusError, match="Context size"):
        list(threads.map(lambda _: run(), range(2)))
