"""Speculative decoding answers what llama-server answers with the same flags: text, events, and counts of guesses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.comparing import assert_same_answer, differences
from tests.e2e.conftest import StartServer, running, server_flags
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.hybrid_model import write_hybrid_model

pytestmark = pytest.mark.slow

Pair = tuple[ServerProcess, ServerProcess]

NGRAMS = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "4"]
BODY = {
    "prompt": "The keeper of the lighthouse said that the keeper of the light was the keeper of the",
    "n_predict": 24,
    "temperature": 0,
    "seed": 1,
    "cache_prompt": False,
    "ignore_eos": True,
}
FIELDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 7},
    {"stop": [" sea", " light"]},
    {"return_tokens": True, "timings_per_token": True},
]


def flags_of(kind: str, draft: Path) -> list[str]:
    if kind == "n-grams":
        return NGRAMS
    return ["-md", str(draft), "--spec-type", "draft-simple", "--spec-draft-n-max", "5", "--spec-draft-p-min", "0.2"]


@pytest.fixture(scope="module", params=["draft model", "n-grams"])
def pair(
    request: pytest.FixtureRequest, draft_path: Path, start_ours: StartServer, start_stock: StartServer
) -> Iterator[Pair]:
    """Our server and llama-server with the same way to guess. Every test asks both the same."""
    flags = flags_of(request.param, draft_path)
    with start_ours(*flags) as ours, start_stock(*flags) as stock:
        yield ours, stock


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("fields", FIELDS, ids=lambda fields: str(fields)[:40])
def test_an_answer_with_guesses(pair: Pair, fields: dict[str, Any], is_streamed: bool) -> None:
    assert assert_same_answer(*pair, "POST", "/completion", {**BODY, **fields, "stream": is_streamed})[0] == 200


def test_an_answer_says_how_many_guesses_were_made_and_accepted(pair: Pair) -> None:
    answer = assert_same_answer(*pair, "POST", "/completion", BODY)[2]
    assert 0 < answer["timings"]["draft_n_accepted"] < answer["timings"]["draft_n"]


def test_guesses_end_where_the_context_ends(pair: Pair) -> None:
    answer = assert_same_answer(*pair, "POST", "/completion", {**BODY, "prompt": [33] * 500, "n_predict": 100})[2]
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")


def test_slots_and_metrics_speak_of_guesses_as_llama_server_does(pair: Pair) -> None:
    def drafts(server: ServerProcess) -> dict[str, float]:
        found = re.findall(r"^(llamacpp:spec_decode\S+) (\S+)$", server.get("/metrics").text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    assert_same_answer(*pair, "POST", "/completion", BODY)
    ours, stock = pair
    assert drafts(ours) == drafts(stock)
    assert drafts(ours)["llamacpp:spec_decode_num_accepted_tokens_total"] > 0
    assert all(slot["speculative"] for server in pair for slot in server.slots())


@pytest.mark.parametrize("kind", ["draft model", "n-grams"])
def test_forced_parks_change_neither_text_nor_guesses(kind: str, draft_path: Path, start_ours: StartServer) -> None:
    flags = flags_of(kind, draft_path)
    with start_ours(*flags) as plain, start_ours(*flags, LLAMA_SERVER_PREEMPT_EVERY="5") as forced:
        assert_same_answer(forced, plain, "POST", "/completion", BODY)
        assert forced.metric("preemptions_total") >= 2


def test_a_memory_that_cannot_drop_wrong_guesses_goes_back_and_verifies_the_right_ones_again(
    smollm2_path: Path, tmp_path: Path
) -> None:
    flags = [*server_flags(write_hybrid_model(tmp_path / "hybrid.gguf", smollm2_path)), *NGRAMS]
    every_five = {"LLAMA_SERVER_PREEMPT_EVERY": "5"}
    with running(our_program(), flags) as ours, running(stock_program(), flags) as stock:
        answer = assert_same_answer(ours, stock, "POST", "/completion", {**BODY, "n_predict": 80})[2]
        assert 0 < answer["timings"]["draft_n_accepted"] < answer["timings"]["draft_n"]
        with running(our_program(), flags, every_five) as forced:
            assert_same_answer(forced, ours, "POST", "/completion", {**BODY, "n_predict": 80})
            assert forced.metric("preemptions_total") >= 5


def test_a_draft_model_that_cannot_be_loaded_ends_the_start(start_ours: StartServer, tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    with (
        pytest.raises(pytest.fail.Exception, match=r"failed to load draft model, '.*missing\.gguf'"),
        start_ours("-md", str(missing), "--spec-type", "draft-simple"),
    ):
        pass


@pytest.mark.parametrize("fields", [{"n_probs": 3}, {"n_probs": 3, "post_sampling_probs": True}], ids=str)
def test_every_token_has_the_probabilities_that_it_has_without_guesses(
    pair: Pair, ours: ServerProcess, fields: dict[str, Any]
) -> None:
    guessed, plain = (server.post("/completion", {**BODY, **fields}).json() for server in (pair[0], ours))
    assert guessed["content"] == plain["content"]
    found = list(differences(guessed["completion_probabilities"], plain["completion_probabilities"]))
    assert not found, "\n".join(found)
