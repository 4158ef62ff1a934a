"""LoRA adapters: their scales for everybody and for one request, compared with llama-server.

The model says other words at other scales, so each text tells which scale it was written with.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.upstream.chain_model import Chain, write_adapter, write_chain_model
from tests.upstream.vocabulary import read_vocabulary

CHAIN = Chain(words=("▁little", "▁wise", "▁day"), adapted=((0.3, "▁special"), (0.7, "▁far"), (1.0, "▁love")))
FLAGS = ("--port", "0", "-np", "4", "-c", "512", "--kv-unified", "-t", "1", "-fit", "off", "--no-warmup", "--cache-ram")
WORDS = {0.0: "wise", 0.3: "special", 0.7: "far", 1.0: "love"}
INVOCATION = "▁machine"

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    vocabulary = read_vocabulary("llama-spm")
    write_chain_model(folder / "model.gguf", vocabulary, CHAIN, has_experts=True)
    write_adapter(folder / "adapter.gguf", vocabulary, CHAIN)
    write_adapter(folder / "activated.gguf", vocabulary, CHAIN, [vocabulary.id_of(INVOCATION)])
    return folder


@pytest.fixture
def servers(files: Path) -> Iterator[Pair]:
    flags = ["-m", str(files / "model.gguf"), *FLAGS, "0", "--lora", str(files / "adapter.gguf")]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


@pytest.fixture
def activated(files: Path) -> Iterator[Pair]:
    flags = ["-m", str(files / "model.gguf"), *FLAGS, "0", "--lora", str(files / "activated.gguf")]
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        yield ours, stock


def completion(prompt: str = "Look in thy glass", **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "n_predict": 6, "temperature": 0, **more}


def test_scales_change_for_everybody_and_are_shown(servers: Pair) -> None:
    for scale, word in WORDS.items():
        assert_same_answer(*servers, "POST", "/lora-adapters", [{"id": 0, "scale": scale}])
        assert assert_same_answer(*servers, "GET", "/lora-adapters")[2][0]["scale"] == pytest.approx(scale)
        answer = assert_same_answer(*servers, "POST", "/completion", completion(cache_prompt=False))
        assert word in answer[2]["content"]


@pytest.mark.parametrize("body", [[], {}, 5, "text", [{}], [{"id": 7, "scale": 1}], [{"id": 0}], b"{"])
def test_odd_scales_are_taken_or_refused_as_stock_does(servers: Pair, body: Any) -> None:
    assert_same_answer(*servers, "POST", "/lora-adapters", body)
    assert_same_answer(*servers, "GET", "/lora-adapters")


def test_each_request_gets_its_own_scale_while_others_run(servers: Pair) -> None:
    ours, _ = servers

    def text_at(scale: float) -> str:
        body = completion(n_predict=40, lora=[{"id": 0, "scale": scale}], id_slot=-1)
        return str(ours.post("/completion", body).json()["content"])

    scales = [*WORDS, *WORDS]
    with ThreadPoolExecutor(len(scales)) as pool:
        texts = list(pool.map(text_at, scales))
    for scale, text in zip(scales, texts, strict=True):
        assert WORDS[scale] in text
        assert not any(other in text for other in set(WORDS.values()) - {WORDS[scale]})


def test_a_prompt_that_another_scale_went_into_is_not_reused(servers: Pair) -> None:
    for scale in (0.0, 1.0, 1.0, 0.3):
        answer = assert_same_answer(
            *servers, "POST", "/completion", completion(id_slot=0, lora=[{"id": 0, "scale": scale}])
        )
        assert WORDS[scale] in answer[2]["content"]


def test_a_prompt_in_the_prompt_cache_is_not_taken_by_another_scale(files: Path) -> None:
    flags = ["-m", str(files / "model.gguf"), *FLAGS, "64", "--lora", str(files / "adapter.gguf"), "-sps", "0.5"]
    first, other = "Look in thy glass and tell the face", "thou viewest now is the time that face should form another"
    with running(our_program(), flags) as ours:
        asked = ((first, 1.0), (other, 1.0), (first, 1.0), (other, 1.0), (first, 0.0), (first, 1.0))
        n_cached = []
        for prompt, scale in asked:
            answer = ours.post("/completion", completion(prompt, id_slot=0, lora=[{"id": 0, "scale": scale}])).json()
            assert WORDS[scale] in answer["content"]
            n_cached.append(answer["timings"]["cache_n"])
    # the first token is the same in all prompts
    assert [n > 1 for n in n_cached] == [False, False, True, True, False, False]


@pytest.mark.parametrize("lora", [5, {}, "text", [{"id": 9, "scale": 1}], []])
def test_an_odd_lora_field_is_taken_or_refused_as_stock_does(servers: Pair, lora: Any) -> None:
    assert_same_answer(*servers, "POST", "/completion", completion(lora=lora, cache_prompt=False))


def test_an_activated_adapter_works_where_its_invocation_is_in_the_prompt(activated: Pair) -> None:
    shown = assert_same_answer(*activated, "GET", "/lora-adapters")[2][0]
    assert shown["alora_invocation_string"].strip() == INVOCATION.lstrip("▁")
    for prompt, word in (("Look in thy glass", "wise"), ("Look in thy machine and see", "love")):
        answer = assert_same_answer(*activated, "POST", "/completion", completion(prompt, cache_prompt=False))
        assert word in answer[2]["content"]


def test_the_tokens_before_an_invocation_are_reused_whatever_the_scale(activated: Pair) -> None:
    ours, _ = activated
    prompt = "Look in thy glass and tell the face thou viewest, machine, what thou seest"
    first = ours.post("/completion", completion(prompt, id_slot=0, lora=[{"id": 0, "scale": 1}])).json()
    again = ours.post("/completion", completion(prompt, id_slot=0, lora=[{"id": 0, "scale": 0}])).json()
    assert "love" in first["content"]
    assert "love" not in again["content"]
    assert 0 < again["timings"]["cache_n"] < first["timings"]["prompt_n"] - 4
