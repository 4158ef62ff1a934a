"""What a request took is counted once for all of its answers, and in streams only where it was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.comparing import CLEAR_QUESTION
from tests.e2e.program import ServerProcess
from tests.e2e.sse import post_stream

CHAT = {
    "messages": [{"role": "user", "content": CLEAR_QUESTION}],
    "max_tokens": 6,
    "temperature": 0,
    "ignore_eos": True,
}
COMPLETION = {"prompt": "1, 2, 3,", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
BOTH = [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)]


@pytest.mark.parametrize(("path", "body"), BOTH, ids=["chat", "completion"])
def test_usage_counts_all_answers_and_their_prompt_once(ours: ServerProcess, path: str, body: dict[str, Any]) -> None:
    one = ours.post(path, body).json()["usage"]
    three = ours.post(path, {**body, "n": 3}).json()["usage"]
    assert three["completion_tokens"] == 18
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["total_tokens"] == one["prompt_tokens"] + 18


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("path", "body"), BOTH, ids=["chat", "completion"])
def test_a_stream_tells_usage_last_and_apart_from_its_choices(
    ours: ServerProcess, path: str, body: dict[str, Any], n: int
) -> None:
    body = {**body, "n": n, "stream_options": {"include_usage": True}}
    *events, last = post_stream(ours, path, body).events
    assert not any(event.get("usage") for event in events)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6 * n
    assert last["object"] == events[0]["object"]


@pytest.mark.parametrize(("path", "body"), BOTH, ids=["chat", "completion"])
def test_a_stream_tells_no_usage_unasked(ours: ServerProcess, path: str, body: dict[str, Any]) -> None:
    events = post_stream(ours, path, {**body, "n": 2}).events
    assert not any("usage" in event for event in events)
    assert all(event["choices"] for event in events)


def test_two_prompts_are_both_counted(ours: ServerProcess) -> None:
    alone = [ours.post("/v1/completions", {**COMPLETION, "prompt": p}).json()["usage"] for p in ("a b", "c d e")]
    usage = ours.post("/v1/completions", {**COMPLETION, "prompt": ["a b", "c d e"]}).json()["usage"]
    assert usage["prompt_tokens"] == sum(one["prompt_tokens"] for one in alone)
    assert usage["completion_tokens"] == 12
