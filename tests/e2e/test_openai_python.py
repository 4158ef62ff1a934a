"""openai-python beyond a chat: tools, parallel calls, responses, structured outputs, embeddings, its exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

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
from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S, ServerProcess

TOOLS: list[ChatCompletionToolParam] = [
    {"type": "function", "function": {"name": "rain", "description": "Weather", "parameters": WEATHER}}
]
ASK: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": OPENING},
]


class Sea(BaseModel):
    """What a structured answer is."""

    name: Literal["North Sea", "Red Sea"]
    is_warm: bool


@pytest.fixture
def client(keyed: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=keyed.url + "/v1", api_key=KEY, timeout=PATIENCE_S, max_retries=0) as client:
        yield client


def test_several_calls_of_a_tool_come_at_once(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="any",
        messages=ASK,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=True,
        max_tokens=100,
        temperature=0,
        extra_body={"cache_prompt": False},  # what is reused of a prompt changes the text a little
    )
    calls = answer.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == [
        {"city": city} for city in CITIES
    ]
    assert len({call.id for call in calls}) == len(CITIES)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_the_result_of_a_call_is_taken_back(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(
        model="any", messages=ASK, tools=TOOLS, tool_choice="required", max_tokens=100, temperature=0
    ).choices[0]
    history: list[ChatCompletionMessageParam] = [ASK[0], first.message.to_dict()]  # type: ignore[list-item]
    for call in first.message.tool_calls or []:
        history.append({"role": "tool", "tool_call_id": call.id, "content": "no"})
    answer = client.chat.completions.create(model="any", messages=history, tools=TOOLS, max_tokens=5, temperature=0)
    assert answer.choices[0].finish_reason == "length"


def test_calls_stream_in_parts_that_the_client_joins(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="any",
        messages=ASK,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=100,
        temperature=0,
        extra_body={"cache_prompt": False},  # what is reused of a prompt changes the text a little
    ) as stream:
        ended = [event.arguments for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [json.loads(arguments) for arguments in ended] == [{"city": city} for city in CITIES]
    assert [call.function.arguments for call in final] == ended


def test_a_structured_answer_is_an_object(ours: ServerProcess) -> None:
    with openai.OpenAI(base_url=ours.url + "/v1", api_key="none", max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="any",
            messages=[{"role": "user", "content": "Name a sea."}],
            response_format=Sea,
            max_tokens=100,
            temperature=0,
        )
    assert isinstance(answer.choices[0].message.parsed, Sea)


def test_a_response_is_answered_whole_and_as_events(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="any", input=HELLO, max_output_tokens=5, temperature=0)
    assert (answer.output_text, answer.status) == (GREETING, "incomplete")  # cut by its limit
    assert answer.usage is not None
    assert answer.usage.output_tokens == 5
    events = list(client.responses.create(model="any", input=HELLO, max_output_tokens=5, temperature=0, stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == GREETING


def test_several_clients_at_once_are_all_answered(keyed: ServerProcess) -> None:
    import asyncio

    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=keyed.url + "/v1", api_key=KEY, max_retries=0) as client:
            chats = [
                client.chat.completions.create(
                    model="any", messages=[{"role": "user", "content": HELLO}], max_tokens=3, temperature=0
                )
                for _ in range(6)  # more than there are slots
            ]
            return [answer.choices[0].message.content for answer in await asyncio.gather(*chats)]

    assert len([text for text in asyncio.run(ask()) if text]) == 6


def test_each_mistake_is_the_exception_that_the_client_has_for_it(client: openai.OpenAI, keyed: ServerProcess) -> None:
    with pytest.raises(openai.BadRequestError, match=TOO_LONG_MESSAGE) as too_long:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": TOO_LONG}], max_tokens=1)
    assert too_long.value.type == "exceed_context_size_error"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="any", messages="no list")  # type: ignore[arg-type]
    with (
        openai.OpenAI(base_url=keyed.url + "/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError, match="Invalid API Key"),
    ):
        stranger.models.list()
    with pytest.raises(openai.NotFoundError):
        client.files.list()


def test_embeddings_come_as_numbers_of_length_one(start_ours: StartServer) -> None:
    with (
        start_ours("--embeddings", "--pooling", "mean") as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        answer = client.embeddings.create(model="any", input=["a sea", "a lake"])  # asks for base64
    vectors = [entry.embedding for entry in answer.data]
    assert [len(vector) for vector in vectors] == [576, 576]
    assert [sum(value * value for value in vector) for vector in vectors] == pytest.approx([1, 1], abs=1e-4)
    assert answer.usage.prompt_tokens > 0
