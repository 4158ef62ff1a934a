"""anthropic-python: messages, streams, tools, counting, and its exceptions."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.e2e.clients import (
    CITIES,
    GREETING,
    HELLO,
    KEY,
    OPENING,
    QUESTION,
    TOO_LONG,
    TOO_LONG_MESSAGE,
    WEATHER,
)
from tests.e2e.program import PATIENCE_S, ServerProcess

CHAT: list[MessageParam] = [{"role": "user", "content": HELLO}]
ASK: list[MessageParam] = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": OPENING}]
TOOLS: list[ToolParam] = [{"name": "rain", "description": "Weather", "input_schema": WEATHER}]
GREEDY = {"temperature": 0}


@pytest.fixture
def client(keyed: ServerProcess) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=keyed.url, api_key=KEY, timeout=PATIENCE_S, max_retries=0) as client:
        yield client


def test_a_message_is_answered(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(model="any", max_tokens=5, messages=CHAT, extra_body=GREEDY)
    assert [block.text for block in answer.content if block.type == "text"] == [GREETING]
    assert (answer.role, answer.stop_reason, answer.usage.output_tokens) == ("assistant", "max_tokens", 5)


def test_a_stream_is_joined_by_the_client(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="any", max_tokens=5, messages=CHAT, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == GREETING
        final = stream.get_final_message()
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 5)


def test_several_calls_of_a_tool_come_at_once(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model="any",
        max_tokens=100,
        messages=ASK,
        tools=TOOLS,
        tool_choice={"type": "any"},
        extra_body={**GREEDY, "cache_prompt": False},
    )
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": city} for city in CITIES]
    assert answer.stop_reason == "tool_use"
    history: list[MessageParam] = [
        ASK[0],
        {"role": "assistant", "content": answer.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "no"} for call in calls],
        },
    ]
    after = client.messages.create(model="any", max_tokens=5, messages=history, tools=TOOLS, extra_body=GREEDY)
    assert after.usage.output_tokens > 0


def test_the_tokens_of_a_message_are_counted(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="any", messages=CHAT).input_tokens
    answer = client.messages.create(model="any", max_tokens=1, messages=CHAT)
    assert counted == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_each_mistake_is_the_exception_that_the_client_has_for_it(
    client: anthropic.Anthropic, keyed: ServerProcess
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=TOO_LONG_MESSAGE):
        client.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": TOO_LONG}])
    with (
        anthropic.Anthropic(base_url=keyed.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError, match="Invalid API Key"),
    ):
        stranger.messages.create(model="any", max_tokens=5, messages=CHAT)
