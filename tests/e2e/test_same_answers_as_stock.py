"""What is right with a request gets llama-server's answer: every field but times and random ids, streamed or not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_QUESTION, assert_same_answer
from tests.e2e.program import ServerProcess

# what follows is far ahead of every other word, and the same whatever the slot held before
PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9,"
COMPLETION = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, "seed": 1, "cache_prompt": False}
CHAT = {
    "messages": [{"role": "user", "content": CLEAR_QUESTION}],
    "max_tokens": 5,
    "temperature": 0,
    "seed": 1,
    "cache_prompt": False,
}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

COMPLETION_FIELDS: list[dict[str, Any]] = [
    {},
    {"prompt": [33, 28, 216]},
    {"prompt": [33, "a", 216]},
    {"prompt": [PROMPT, "a, b, c, d, e, f,"]},
    {"prompt": {"prompt_string": PROMPT}},
    {"stop": [" 12"]},
    {"stop": ["no such text"]},
    {"n_probs": 3},
    {"n_probs": 2, "post_sampling_probs": True},
    {"n": 2},
    {"response_fields": ["content", "timings/predicted_n", "nope"]},
    {"return_tokens": True},
    {"timings_per_token": True},
    {"return_progress": True},
    {"ignore_eos": True},
    {"grammar": "root ::= [a-z]+"},
    {"json_schema": SCHEMA},
    {"logit_bias": [[216, -100.0]]},
    {"samplers": ["top_k"], "top_k": 1},
    {"n_keep": 5},
    {"max_tokens": 3},
    {"t_max_predict_ms": 600000},
    {"mirostat": 2},
    {"unknown_field": 1},
]
OPENAI_FIELDS: list[dict[str, Any]] = [
    {},
    {"prompt": [PROMPT, "a, b, c, d, e, f,"]},
    {"logprobs": 2},
    {"n": 2},
    {"stop": " 12"},
    {"stop": ["\n", " 13"]},
    {"stream_options": {"include_usage": True}},
    {"model": "anything"},
    {"max_tokens": 0},
    {"echo": True},
    {"suffix": "x"},
    {"best_of": 2},
    {"user": "x"},
    {"verbose": True},
    {"timings_per_token": True},
    {"return_progress": True},
]
CHAT_FIELDS: list[dict[str, Any]] = [
    {},
    {"logprobs": True, "top_logprobs": 2},
    {"logprobs": True},
    {"n": 2},
    {"stop": [" c"]},
    {"max_completion_tokens": 3, "max_tokens": None},
    {"stream_options": {"include_usage": True}},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": CLEAR_QUESTION}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": CLEAR_QUESTION}]}]},
    {
        "messages": [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1, 2, 3, 4, 5, 6,"}],
        "echo": True,
    },
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"grammar": 'root ::= "Paris"'},
    {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": []},
    {"logit_bias": {"504": -100}},
    {"model": "gpt-4o"},
    {"verbose": True},
    {"timings_per_token": True},
    {"return_progress": True},
]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", COMPLETION_FIELDS, ids=str)
def test_a_completion(ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool) -> None:
    body = {**COMPLETION, "stream": is_streamed, **fields}
    assert assert_same_answer(ours, stock, "POST", "/completion", body)[0] == 200


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", OPENAI_FIELDS, ids=str)
def test_an_openai_completion(
    ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool
) -> None:
    body = {**COMPLETION, "max_tokens": 8, "stream": is_streamed, **fields}
    assert_same_answer(ours, stock, "POST", "/v1/completions", body)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", CHAT_FIELDS, ids=lambda fields: str(fields)[:60])
def test_a_chat(ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool) -> None:
    body = {**CHAT, "stream": is_streamed, **fields}
    assert assert_same_answer(ours, stock, "POST", "/v1/chat/completions", body)[0] == 200


@pytest.mark.parametrize(
    ("n_predict", "stop", "expected"),
    [(4, [], ("limit", "")), (40, [" 12"], ("word", " 12"))],
)
def test_why_a_completion_ended(
    ours: ServerProcess, stock: ServerProcess, n_predict: int, stop: list[str], expected: tuple[str, str]
) -> None:
    body = {**COMPLETION, "n_predict": n_predict, "stop": stop}
    answer = assert_same_answer(ours, stock, "POST", "/completion", body)[2]
    assert (answer["stop_type"], answer["stopping_word"]) == expected


def test_an_end_of_turn_is_a_finish_reason_of_its_own(ours: ServerProcess, stock: ServerProcess) -> None:
    body = {**CHAT, "max_tokens": 60, "grammar": 'root ::= "Paris"'}
    answer = assert_same_answer(ours, stock, "POST", "/v1/chat/completions", body)[2]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == "Paris"


def test_the_context_can_be_filled_to_its_end(ours: ServerProcess, stock: ServerProcess) -> None:
    body = {**COMPLETION, "prompt": [33] * 505, "n_predict": 100, "ignore_eos": True, "samplers": ["top_k"], "top_k": 1}
    answer = assert_same_answer(ours, stock, "POST", "/completion", body)[2]
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")


def test_a_second_turn_reports_what_it_took_from_the_cache(ours: ServerProcess, stock: ServerProcess) -> None:
    first = {**COMPLETION, "cache_prompt": True, "id_slot": 0, "prompt": "one two three four five six seven eight"}
    assert_same_answer(ours, stock, "POST", "/completion", {**first, "cache_prompt": False})
    again = assert_same_answer(ours, stock, "POST", "/completion", first)[2]
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 1


@pytest.mark.parametrize(
    "body",
    [
        {"content": "Hello world"},
        {"content": ["a", 5, "b"]},
        {"content": "a", "with_pieces": True},
        {"content": "\u00e9\U0001f600", "with_pieces": True},
        {"content": "a", "add_special": True},
        {"content": "<|im_start|>"},
        {"content": "<|im_start|>", "parse_special": False},
        {"content": 5},
        {"content": None},
        {"content": "a", "add_special": "x"},
    ],
    ids=str,
)
def test_tokenize(ours: ServerProcess, stock: ServerProcess, body: dict[str, Any]) -> None:
    assert_same_answer(ours, stock, "POST", "/tokenize", body)


@pytest.mark.parametrize("tokens", [[1, 2, 3], [], "a", ["a"], 5], ids=str)
def test_detokenize(ours: ServerProcess, stock: ServerProcess, tokens: Any) -> None:
    assert_same_answer(ours, stock, "POST", "/detokenize", {"tokens": tokens})


@pytest.mark.parametrize("token", [-1, 999999])
def test_a_token_outside_the_vocabulary_is_the_clients_mistake(ours: ServerProcess, token: int) -> None:
    # llama-server answers 500 and with a message of the C++ library
    answer = ours.post("/detokenize", {"tokens": [token]})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Prompt contains invalid tokens")


@pytest.mark.parametrize("fields", [{}, {"add_generation_prompt": False}, {"tools": [TOOL]}, {"messages": 5}], ids=str)
def test_apply_template(ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any]) -> None:
    assert_same_answer(ours, stock, "POST", "/apply-template", {**CHAT, **fields})


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/props", "/v1/models", "/models"])
def test_a_route_that_only_looks(ours: ServerProcess, stock: ServerProcess, path: str) -> None:
    assert assert_same_answer(ours, stock, "GET", path)[0] == 200


def test_slots_begin_with_the_fields_of_stock(ours: ServerProcess, stock: ServerProcess) -> None:
    for server in (ours, stock):
        for i in range(4):
            server.post("/completion", {**COMPLETION, "n_predict": 1, "id_slot": i})
    for our_slot, stock_slot in zip(ours.slots(), stock.slots(), strict=True):
        assert list(our_slot)[: len(stock_slot)] == list(stock_slot)
        assert our_slot["params"] == stock_slot["params"]
        assert our_slot["next_token"] == stock_slot["next_token"]


def test_metrics_have_every_series_of_stock_with_its_type_and_help(ours: ServerProcess, stock: ServerProcess) -> None:
    our_text, stock_text = ours.get("/metrics").text, stock.get("/metrics").text
    about = re.compile(r"^# (?:TYPE|HELP) .*$", re.MULTILINE)
    assert about.findall(stock_text)
    assert set(about.findall(stock_text)) <= set(about.findall(our_text))
    names = re.compile(r"^(llamacpp:\S+) ", re.MULTILINE)
    assert set(names.findall(stock_text)) <= set(names.findall(our_text))
