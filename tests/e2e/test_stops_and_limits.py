"""How an answer ends: stop strings, limits, and what was held back until then. Streams say what whole answers say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_PROMPT, CLEAR_QUESTION
from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream

COMPLETION = {"prompt": CLEAR_PROMPT, "n_predict": 8, "temperature": 0, "cache_prompt": False}
CHAT = {
    "messages": [{"role": "user", "content": CLEAR_QUESTION}],
    "max_tokens": 8,
    "temperature": 0,
    "cache_prompt": False,
}


def text_of(ours: ServerProcess, **fields: Any) -> str:
    return str(ours.post("/completion", {**COMPLETION, **fields}).json()["content"])


@pytest.mark.parametrize("stop", ["", [""], ["", ""]], ids=repr)
def test_an_empty_stop_string_stops_nothing(ours: ServerProcess, stop: object) -> None:
    answer = ours.post("/completion", {**COMPLETION, "stop": stop}).json()
    assert (answer["content"], answer["stop_type"]) == (text_of(ours), "limit")
    chat = ours.post("/v1/chat/completions", {**CHAT, "stop": stop}).json()["choices"][0]
    assert chat["finish_reason"] == "length"
    assert chat["message"]["content"]


def test_a_stream_that_ends_by_its_limit_says_what_looked_like_a_stop_string(ours: ServerProcess) -> None:
    text = text_of(ours)
    stop = [text[-3:] + "\x01"]
    assert text_of(ours, stop=stop) == text
    assert post_stream(ours, "/completion", {**COMPLETION, "stop": stop}).text == text
    chat = ours.post("/v1/chat/completions", CHAT).json()["choices"][0]["message"]["content"]
    stop = [chat[-3:] + "\x01"]
    assert post_stream(ours, "/v1/chat/completions", {**CHAT, "stop": stop}).text == chat


@pytest.mark.parametrize("n_tokens", range(1, 6))
def test_a_stream_that_ends_within_a_character_says_so_as_the_whole_answer_does(
    ours: ServerProcess, n_tokens: int
) -> None:
    body = {**COMPLETION, "n_predict": n_tokens, "grammar": 'root ::= "\U0001f9ea\U0001f9ec"'}
    whole = ours.post("/completion", body).json()["content"]
    assert post_stream(ours, "/completion", body).text == whole


def test_a_chat_whose_first_token_is_no_whole_character_says_first_who_speaks(ours: ServerProcess) -> None:
    stream = post_stream(ours, "/v1/chat/completions", {**CHAT, "grammar": 'root ::= "\U0001f9ea"'})
    assert stream.events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert stream.text == "\U0001f9ea"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_all_of_a_stream_was_created_at_one_time(ours: ServerProcess, path: str) -> None:
    body = {**CHAT, "prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True}
    events = post_stream(ours, path, body).events
    assert len({event["created"] for event in events}) == 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_no_token_is_generated_where_none_was_asked_for(ours: ServerProcess, is_streamed: bool) -> None:
    if is_streamed:
        options = {"max_tokens": 0, "stream_options": {"include_usage": True}}
        events = post_stream(ours, "/v1/chat/completions", {**CHAT, **options}).events
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
        assert events[1]["choices"][0]["finish_reason"] == "length"
        assert events[2]["usage"]["completion_tokens"] == 0
        assert len(events) == 3
    else:
        answer = ours.post("/v1/chat/completions", {**CHAT, "max_tokens": 0}).json()
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
        assert answer["usage"]["completion_tokens"] == 0
    assert ours.post("/completion", {**COMPLETION, "n_predict": 0}).json()["content"] == ""


@pytest.mark.parametrize("token", [2**63 + 5, 2**64 + 5, 2**32 + 5, -1, 1.5, 1e300], ids=str)
def test_a_number_that_is_no_token_is_refused(ours: ServerProcess, token: float) -> None:
    assert ours.post("/completion", {**COMPLETION, "prompt": [5, token]}).status_code == 400
    assert ours.post("/completion", {**COMPLETION, "prompt": [[5], ["a", token]]}).status_code == 400
    assert ours.post("/tokenize", {"content": ["a", token]}).status_code == 400
    assert ours.post("/detokenize", {"tokens": [token]}).status_code == 400


def test_a_token_may_be_written_with_a_point(ours: ServerProcess) -> None:
    assert ours.post("/detokenize", {"tokens": [5.0]}).json() == ours.post("/detokenize", {"tokens": [5]}).json()
