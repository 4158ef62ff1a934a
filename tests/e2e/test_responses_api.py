"""Responses and their streams are what the openai package says that they are.

Every event is validated against the package's own models, which know its required fields, and its place in the stream
is checked: what is open, which number it has.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.e2e.program import PATIENCE_S, ServerProcess
from tests.e2e.rain import ASK, CALLS, STORY, THOUGHT, TOOL, begun, both
from tests.e2e.sse import post_stream

RESPONSE_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"input": "Hi", "max_output_tokens": 5},
    "all of the text": {"input": "Hi", "grammar": 'root ::= "No rain."'},
    "progress": {"input": "Hi", "max_output_tokens": 2, "return_progress": True},
    "nothing": {"input": "Hi", "max_output_tokens": 0},
}


def check_response_stream(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Asserts that the events are what the API has; returns the response at the end."""
    finished: list[dict[str, Any]] = []
    item: dict[str, Any] | None = None
    text = ""
    for number, event in enumerate(events):
        RESPONSE_EVENT.validate_python(event)
        assert event["sequence_number"] == number
        if "output_index" in event:
            assert event["output_index"] == len(finished)
        if "item_id" in event:
            assert item is not None
            assert event["item_id"] == item["id"]
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert item is None
                item, text = event["item"], ""
            case "reasoning_text.delta" | "output_text.delta" | "function_call_arguments.delta":
                text += event["delta"]
            case "reasoning_text.done" | "output_text.done":
                assert event["text"] == text
            case "function_call_arguments.done":
                assert event["arguments"] == text
            case "output_item.done":
                assert item is not None
                assert event["item"]["id"] == item["id"]
                finished.append(event["item"])
                item = None
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1]["type"] == "response.completed"
    response: dict[str, Any] = events[-1]["response"]
    assert item is None
    assert response["output"] == finished
    return response


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_and_its_stream_are_what_the_package_expects(ours: ServerProcess, name: str) -> None:
    body = {"temperature": 0, **RESPONSES[name]}
    streamed = check_response_stream(post_stream(ours, "/v1/responses", body).events)
    whole = ours.post("/v1/responses", body).json()
    assert set(whole) == set(streamed)
    Response.model_validate(whole, strict=True)
    for answer in (streamed, whole):
        assert (answer["status"] == "incomplete") is (answer["incomplete_details"] is not None)
    for mine, theirs in zip(whole["output"], streamed["output"], strict=True):
        assert {**mine, "id": ""} == {**theirs, "id": ""}


@pytest.mark.parametrize("name", CALLS)
def test_a_response_with_calls_is_what_the_package_expects(qwen: ServerProcess, name: str) -> None:
    opening, kinds = CALLS[name]
    body = {"input": begun(opening), "tools": [TOOL], "tool_choice": "required", "echo": True, "temperature": 0}
    body = {**body, "parallel_tool_calls": True, "max_output_tokens": 60}
    response = check_response_stream(post_stream(qwen, "/v1/responses", body).events)
    assert [item["type"] for item in response["output"]][: len(kinds)] == kinds
    Response.model_validate(qwen.post("/v1/responses", body).json(), strict=True)


def test_a_response_with_reasoning_is_what_the_package_expects(thinker: ServerProcess) -> None:
    body = {"input": "Rain?", "grammar": THOUGHT, "temperature": 0}
    response = check_response_stream(post_stream(thinker, "/v1/responses", body).events)
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    Response.model_validate(thinker.post("/v1/responses", body).json(), strict=True)


def test_the_packages_own_accumulator_takes_the_stream(qwen: ServerProcess) -> None:
    with openai.OpenAI(base_url=qwen.url + "/v1", api_key="none", timeout=PATIENCE_S, max_retries=0) as client:
        with client.responses.stream(model="any", input="Hi", max_output_tokens=5, temperature=0) as stream:
            response = stream.get_final_response()
        whole = client.responses.create(model="any", input="Hi", max_output_tokens=5, temperature=0)
    assert response.output_text == whole.output_text != ""


def test_an_error_in_a_stream_of_a_response_is_an_event_that_the_package_raises(tight: ServerProcess) -> None:
    body = {"input": STORY, "max_output_tokens": 200, "temperature": 0}
    events = both(tight, "/v1/responses", body)
    for number, event in enumerate(events):
        RESPONSE_EVENT.validate_python(event)
        assert event["sequence_number"] == number
    assert (events[-1]["type"], events[-1]["code"]) == ("error", "server_error")

    def run() -> None:
        with openai.OpenAI(base_url=tight.url + "/v1", api_key="none", timeout=PATIENCE_S, max_retries=0) as client:
            story: Any = STORY
            for _ in client.responses.create(**{**body, "input": story}, model="any", stream=True):
                pass

    with ThreadPoolExecutor(2) as threads, pytest.raises(openai.APIError, match="Context size"):
        list(threads.map(lambda _: run(), range(2)))


INPUTS: dict[str, list[dict[str, Any]]] = {
    "an assistant's text": [ASK, {"role": "assistant", "content": "No."}, ASK],
    "a refusal": [
        ASK,
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ASK,
    ],
    "a tool's output in parts": [
        ASK,
        {"type": "function_call", "call_id": "c", "name": "rain", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "no"}]},
    ],
    "reasoning without its text": [
        ASK,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"role": "assistant", "content": "No."},
        ASK,
    ],
    "reasoning with a summary": [
        ASK,
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "assistant", "content": "No."},
        ASK,
    ],
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_response_takes_all_forms_of_input(qwen: ServerProcess, name: str) -> None:
    nothing: dict[str, Any] = {"tools": None, "instructions": None, "text": None, "reasoning": None, "metadata": None}
    answer = qwen.post("/v1/responses", {"input": INPUTS[name], "max_output_tokens": 3, **nothing})
    assert answer.status_code == 200, answer.text


def test_what_a_response_gives_can_be_given_back(qwen: ServerProcess) -> None:
    first = {"input": begun("<tool_call>"), "tools": [TOOL], "tool_choice": "required", "temperature": 0}
    output = qwen.post("/v1/responses", {**first, "max_output_tokens": 60}).json()["output"]
    call = next(item for item in output if item["type"] == "function_call")
    given = {"type": "function_call_output", "call_id": call["call_id"], "output": "no"}
    again = qwen.post("/v1/responses", {"input": [ASK, *output, given], "tools": [TOOL], "max_output_tokens": 3})
    assert again.status_code == 200, again.text


def test_a_response_keeps_to_its_format(ours: ServerProcess) -> None:
    shape = {"type": "json_schema", "name": "n", "strict": True, "schema": {"const": {"rain": False}}}
    answer = ours.post("/v1/responses", {"input": "Rain?", "text": {"format": shape}, "temperature": 0}).json()
    assert json.loads(answer["output"][0]["content"][0]["text"]) == {"rain": False}
    assert answer["text"]["format"] == shape
