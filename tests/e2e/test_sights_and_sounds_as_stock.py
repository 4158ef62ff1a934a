"""A model that sees and hears at once, as in llama-server of the same tree: both in one chat, in any order."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.comparing import ask, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.hearing_models import wav, write_seeing_and_hearing
from tests.vision_models import VisionModel, png

FLAGS = ["--host", "127.0.0.1", "--port", "0", "-c", "1024", "-np", "2", "-t", "1", "--kv-unified", "--no-warmup"]
FLAGS += ["-fit", "off", "--cache-ram", "0", "--metrics"]
IMAGE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(64, 48, seed=1)).decode()},
}
SOUND = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav(0.5, seed=1)).decode(), "format": "wav"}}
ORDERS: dict[str, list[dict[str, Any]]] = {
    "seen, heard": [IMAGE, SOUND],
    "heard, seen": [SOUND, IMAGE],
    "heard, seen, heard": [SOUND, IMAGE, SOUND],
}

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return write_seeing_and_hearing(tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="module")
def pair(model: VisionModel) -> Iterator[Pair]:
    flags = [*model.argv, *FLAGS]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


def chat(parts: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": "What is this:"}]
    for part in parts:
        content += [part, {"type": "text", "text": "and this?"}]
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "max_tokens": 16, "temperature": 0.0, "cache_prompt": False, **more}


@pytest.mark.parametrize("order", ORDERS)
def test_a_chat_is_answered_alike(pair: Pair, order: str) -> None:
    answer = assert_same_answer(*pair, "POST", "/v1/chat/completions", chat(ORDERS[order]))
    assert answer[0] == 200
    assert len(answer[2]["choices"][0]["message"]["content"]) > 0


def test_both_are_told(pair: Pair) -> None:
    modalities = [server.get("/props").json()["modalities"] for server in pair]
    assert all(told["vision"] and told["audio"] for told in modalities)
    assert_same_answer(*pair, "POST", "/v1/chat/completions/input_tokens", chat([IMAGE, SOUND]))


def test_parked_again_and_again_it_says_the_same(pair: Pair, model: VisionModel) -> None:
    body = chat([IMAGE, SOUND], n=2, max_tokens=12)
    expected = ask(pair[0], "POST", "/v1/chat/completions", body)[2]["choices"]
    with running(our_program(), [*model.argv, *FLAGS], {"LLAMA_SERVER_PREEMPT_EVERY": "5"}) as forced:
        assert ask(forced, "POST", "/v1/chat/completions", body)[2]["choices"] == expected
        assert forced.metric("preemptions_total") >= 1
