"""POST /v1/chat/completions/control reaches a completion while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.program import REPOSITORY, ServerProcess
from tests.e2e.sse import sse_lines

TEMPLATE = REPOSITORY / "vendor/ggml/llama.cpp/models/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja"
CHAT = {
    "messages": [{"role": "user", "content": "Tell me all about the sea."}],
    "max_tokens": 60,
    "temperature": 0,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(scope="module")
def thinker(start_ours: StartServer) -> Iterator[ServerProcess]:
    """Its template opens a block of reasoning in every answer."""
    with start_ours("--chat-template-file", str(TEMPLATE), "--reasoning-format", "deepseek") as server:
        yield server


def deltas(server: ServerProcess, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The completion's id and each delta of its only choice."""
    with server.post("/v1/chat/completions", body, stream=True) as response:
        for line in sse_lines(response):
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                for choice in event.get("choices", []):
                    yield event["id"], choice["delta"]


def end_reasoning(server: ServerProcess, completion_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = server.post(
        "/v1/chat/completions/control", {"id": completion_id, "action": "reasoning_end"}
    ).json()
    return answer


def test_a_running_completion_that_asked_for_control_takes_it(thinker: ServerProcess) -> None:
    # whether the text changes at once is the sampler's affair: it ends what it has seen begin
    said = None
    for completion_id, delta in deltas(thinker, {**CHAT, "reasoning_control": True}):
        if delta.get("reasoning_content") and said is None:
            said = end_reasoning(thinker, completion_id)
    assert said == {"success": True}


def test_reasoning_that_was_not_made_controllable_goes_on(thinker: ServerProcess) -> None:
    said = None
    for completion_id, delta in deltas(thinker, CHAT):
        if delta.get("reasoning_content") and said is None:
            said = end_reasoning(thinker, completion_id)
    assert said == {"success": False, "message": "reasoning control not enabled for this completion"}
