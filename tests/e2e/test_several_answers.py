"""Several answers to one prompt (n > 1) are those of llama-server: text by text, with its seeds, counts and usage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_QUESTION, assert_same_answer
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

COMPLETION = {"prompt": "1, 2, 3, 4, 5, 6, 7, 8, 9,", "n": 3, "n_predict": 10, "seed": 5, "cache_prompt": False}
CHAT = {
    "messages": [{"role": "user", "content": CLEAR_QUESTION}],
    "n": 2,
    "max_tokens": 8,
    "seed": 5,
    "cache_prompt": False,
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "fields", [{"temperature": 0}, {"temperature": 1.5}, {"n_probs": 2, "temperature": 0}], ids=str
)
def test_completions_of_one_prompt(
    ours: ServerProcess, stock: ServerProcess, fields: dict[str, Any], is_streamed: bool
) -> None:
    assert_same_answer(ours, stock, "POST", "/completion", {**COMPLETION, **fields, "stream": is_streamed})


@pytest.mark.parametrize("is_streamed", [False, True])
def test_choices_of_a_chat_and_their_usage(ours: ServerProcess, stock: ServerProcess, is_streamed: bool) -> None:
    options = {"stream": is_streamed, "stream_options": {"include_usage": True}, "temperature": 0}
    assert_same_answer(ours, stock, "POST", "/v1/chat/completions", {**CHAT, **options})


def test_two_prompts_with_two_answers_each(ours: ServerProcess, stock: ServerProcess) -> None:
    body = {**COMPLETION, "prompt": ["a, b, c, d,", "1, 2, 3, 4,"], "n": 2, "temperature": 0}
    assert_same_answer(ours, stock, "POST", "/completion", body)


def test_more_answers_than_slots_are_refused(ours: ServerProcess, stock: ServerProcess) -> None:
    assert_same_answer(ours, stock, "POST", "/completion", {**COMPLETION, "n": 5})


def test_forced_parks_change_no_answer(ours: ServerProcess, start_ours: StartServer) -> None:
    body = {**COMPLETION, "temperature": 0.9, "n_predict": 20}
    with start_ours(LLAMA_SERVER_PREEMPT_EVERY="5") as forced:
        assert_same_answer(forced, ours, "POST", "/completion", body)
        assert forced.metric("preemptions_total") >= 3 * 3
