"""Embeddings and chats: two kinds of jobs that no batch can hold together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.request_kind import RequestKind

from tests.engine.harness import EngineHarness

SIZES = ("-c", "256", "-np", "4", "-b", "64", "-ub", "64", "-t", "1", "--no-warmup", "-fit", "off")


@pytest.fixture(scope="module")
def engine(narrow_path: Path) -> Iterator[EngineHarness]:
    """A causal model that embeds, with a pool that a chat never fills for good."""
    flags = ["-m", str(narrow_path), *SIZES, "--kv-unified", "--context-shift", "--embeddings", "--pooling", "mean"]
    with EngineHarness(flags) as engine:
        yield engine


def test_a_prompt_to_embed_does_not_wait_for_an_endless_chat(engine: EngineHarness) -> None:
    chat = engine.start(prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True)
    engine.wait_for_tokens(chat, 2)
    prompts = engine.start_as(RequestKind.EMBEDDING, input=["one", "two three", "four five six"])
    engine.wait(prompts)
    n_tokens = chat.n_tokens()
    engine.wait_for_tokens(chat, n_tokens + 2)  # nor does the chat wait for ever
    engine.cancel(chat)
    engine.wait(chat)
    assert [prompts.result(i)["index"] for i in range(3)] == [0, 1, 2]
    assert chat.n_tokens() >= n_tokens + 2


def test_a_prompt_that_was_embedded_leaves_its_cells(engine: EngineHarness) -> None:
    engine.wait(engine.start_as(RequestKind.EMBEDDING, input="I believe the meaning of life is"))
    held = engine.run(prompt="x", n_predict=1, cache_prompt=False)
    counters = engine.engine.snapshot().counters
    assert counters.kv_cells_used == sum(slot.n_cells for slot in engine.engine.snapshot().slots)
    assert held.error() is None


def test_an_embedding_is_not_changed_by_a_chat_at_the_same_time(engine: EngineHarness) -> None:
    alone = engine.start_as(RequestKind.EMBEDDING, input="I believe the meaning of life is")
    engine.wait(alone)
    chat = engine.start(prompt="Once upon a time", n_predict=-1, ignore_eos=True, stream=True)
    engine.wait_for_tokens(chat, 2)
    together = engine.start_as(RequestKind.EMBEDDING, input="I believe the meaning of life is")
    engine.wait(together)
    engine.cancel(chat)
    engine.wait(chat)
    assert together.result() == alone.result()
