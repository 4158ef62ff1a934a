"""Speculative decoding of chats with images and sounds: what llama-server of the same tree says and how much of it was
guessed, also of a chat that was parked in between."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.comparing import ask, assert_same_answer
from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program, stock_program
from tests.hearing_models import MEDIA_WRITERS, file_for
from tests.vision_models import VisionModel

MARKER = "<__media__>"
ENVIRONMENT = {"LLAMA_MEDIA_MARKER": MARKER}
FLAGS = ["--host", "127.0.0.1", "--port", "0", "-c", "1024", "-np", "2", "-t", "1", "--kv-unified", "--no-warmup"]
FLAGS += ["-fit", "off", "--cache-ram", "0", "--image-max-tokens", "64", "--metrics"]
N_PREDICT = 40

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module", params=list(MEDIA_WRITERS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VisionModel:
    return MEDIA_WRITERS[request.param](tmp_path_factory.mktemp(request.param))


def guessing(model: VisionModel) -> list[str]:
    """The model guesses for itself: nearly all is right if the draft's cells have the images in them."""
    return [*model.argv, *FLAGS, "-md", str(model.model), "--spec-type", "draft-simple", "--spec-draft-n-max", "4"]


@pytest.fixture(scope="module")
def pair(model: VisionModel) -> Iterator[Pair]:
    flags = guessing(model)
    with running(our_program(), flags, ENVIRONMENT) as ours, running(stock_program(), flags, ENVIRONMENT) as stock:
        yield ours, stock


def completion(server: ServerProcess, *seeds: int, **more: object) -> dict[str, Any]:
    props = server.get("/props").content
    told = "Look at" + "".join(f" {MARKER} and {seed}" for seed in seeds)
    data = [base64.b64encode(file_for(props, seed)).decode() for seed in seeds]
    prompt = {"prompt_string": told, "multimodal_data": data}
    fields = {"n_predict": N_PREDICT, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
    return {"prompt": prompt, **fields, **more}


@pytest.mark.parametrize("seeds", [(1,), (1, 2), ()], ids=["one", "two", "no"])
def test_text_and_guesses_are_those_of_stock(pair: Pair, seeds: tuple[int, ...]) -> None:
    timings = assert_same_answer(*pair, "POST", "/completion", completion(pair[0], *seeds))[2]["timings"]
    assert timings["draft_n_accepted"] > N_PREDICT / 4


def test_it_says_what_it_says_without_guesses(pair: Pair, model: VisionModel) -> None:
    guessed = ask(pair[0], "POST", "/completion", completion(pair[0], 3, n_predict=12))[2]["content"]
    with running(our_program(), [*model.argv, *FLAGS], ENVIRONMENT) as plain:
        assert ask(plain, "POST", "/completion", completion(plain, 3, n_predict=12))[2]["content"] == guessed


def test_parked_it_says_and_guesses_the_same(pair: Pair, model: VisionModel) -> None:
    expected = ask(pair[0], "POST", "/completion", completion(pair[0], 4, 5))[2]
    every_five = {**ENVIRONMENT, "LLAMA_SERVER_PREEMPT_EVERY": "5"}
    with running(our_program(), guessing(model), every_five) as forced:
        parked = ask(forced, "POST", "/completion", completion(forced, 4, 5))[2]
        assert forced.metric("preemptions_total") >= 2
    assert parked["content"] == expected["content"]
    assert parked["timings"]["draft_n_accepted"] == expected["timings"]["draft_n_accepted"]


def test_n_grams_guess_as_in_stock(model: VisionModel) -> None:
    flags = [*model.argv, *FLAGS, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2"]
    flags += ["--spec-ngram-simple-size-m", "4"]
    with running(our_program(), flags, ENVIRONMENT) as ours, running(stock_program(), flags, ENVIRONMENT) as stock:
        assert assert_same_answer(ours, stock, "POST", "/completion", completion(ours, 1, 2))[0] == 200
        assert all(slot["speculative"] for slot in ours.slots())
