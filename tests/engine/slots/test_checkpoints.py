"""Context checkpoints on a model with a window: a prompt that branches off goes back instead of starting again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.engine.slots.checkpoints import SlotCheckpoints

from tests.engine.harness import EngineHarness
from tests.engine.window_model import WINDOW, write_window_model

PROMPT = [1000 + i for i in range(200)]
N_UBATCH = 16
N_GENERATED = 300  # more than the 256 cells of the window cache: it has left the prompt then
N_NEAR_END = len(PROMPT) - 4  # where the last checkpoint is


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, narrow_path: Path) -> Path:
    return write_window_model(tmp_path_factory.mktemp("model") / "window.gguf", narrow_path)


def start(model: Path, *flags: str) -> EngineHarness:
    """Without prompt cache, which would know the prompts of earlier tests, unless the flags say otherwise."""
    size = ["-c", "1024", "-np", "2", "--kv-unified", "-b", "64", "-ub", str(N_UBATCH), "-t", "1", "-fit", "off"]
    size += ["--cache-ram", "0"]
    return EngineHarness(["-m", str(model), *size, *flags])


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[EngineHarness]:
    with start(model) as harness:
        yield harness


def complete(engine: EngineHarness, prompt: list[int], **body: object) -> dict[str, object]:
    wanted = {"prompt": prompt, "n_predict": N_GENERATED, "temperature": 0, "ignore_eos": True, "id_slot": 0, **body}
    return engine.run(**wanted).result()


def n_cached(result: dict[str, object]) -> int:
    timings = result["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def test_the_next_turn_goes_back_to_the_end_of_the_prompt_before_it(engine: EngineHarness) -> None:
    following = [*PROMPT, *range(3000, 3040)]
    alone = complete(engine, following, cache_prompt=False)
    complete(engine, PROMPT, cache_prompt=False)
    again = complete(engine, following)
    assert n_cached(again) == N_NEAR_END - 1
    assert again["content"] == alone["content"]


def test_without_checkpoints_it_starts_again(model: Path) -> None:
    with start(model, "--ctx-checkpoints", "0") as engine:
        complete(engine, PROMPT)
        assert n_cached(complete(engine, [*PROMPT, *range(3000, 3040)])) == 0


def test_a_prompt_that_branches_off_before_every_checkpoint_starts_again(engine: EngineHarness) -> None:
    branch = [*PROMPT[: 2 * WINDOW], *range(3000, 3040)]
    alone = complete(engine, branch, cache_prompt=False)
    complete(engine, PROMPT, cache_prompt=False)
    again = complete(engine, branch)
    assert (n_cached(again), again["content"]) == (0, alone["content"])


def test_a_message_of_the_user_is_a_place_for_one(engine: EngineHarness) -> None:
    def chat(question: str) -> dict[str, object]:
        marks = [{"role": "user", "delimiter": "<|im_start|>user"}]
        text = f"<|im_start|>system\n{'Be kind. ' * 60}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
        return complete(engine, text, message_delimiters=marks)  # type: ignore[arg-type]

    complete(engine, PROMPT, cache_prompt=False)
    first = chat("What is the sea? " * 10)
    other = chat("Who are you? " * 10)
    n_evaluated = first["tokens_evaluated"]
    assert isinstance(n_evaluated, int)
    assert n_cached(first) == 0
    assert n_cached(other) > 3 * WINDOW  # all of the system's message, which the window had left


def test_a_slot_from_the_prompt_cache_brings_its_checkpoints_along(model: Path) -> None:
    other, following = [5000 + i for i in range(200)], [*PROMPT, *range(3000, 3040)]
    with start(model, "--cache-ram", "100") as engine:
        complete(engine, PROMPT)
        complete(engine, other)
        assert n_cached(complete(engine, following)) == N_NEAR_END - 1


def test_no_slot_has_more_than_it_may(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    make_before = SlotCheckpoints.make_before

    def make_and_count(checkpoints: SlotCheckpoints, slot: object, n_next: int) -> None:
        make_before(checkpoints, slot, n_next)  # type: ignore[arg-type]
        counts.append(len(checkpoints.of(slot)))  # type: ignore[arg-type]

    monkeypatch.setattr(SlotCheckpoints, "make_before", make_and_count)
    with start(model, "--ctx-checkpoints", "2", "--checkpoint-min-step", "0") as engine:
        for n_more in range(4):
            complete(engine, [*PROMPT, *range(3000, 3000 + 40 * n_more)], n_predict=1)
    assert max(counts) == 2
