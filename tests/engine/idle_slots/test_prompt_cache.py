"""The prompt cache: prompts that lose their slot come back, within the limit, and only to those who begin with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.engine.idle_slots.prompt_cache import PromptCache
from pyggml_server.native.log import flush_log
from pyggml_server.native.prompt_cache import NativePromptCache

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

STORY = list(range(100, 160))
RECIPE = list(range(300, 360))
LETTER = list(range(500, 560))


@contextlib.contextmanager
def engine_with(model: Path, *flags: str, n_slots: int = 2) -> Iterator[EngineHarness]:
    size = ["-c", "512", "-np", str(n_slots), "--kv-unified", "-t", "1"]
    with EngineHarness(["-m", str(model), *size, *flags]) as harness:
        yield harness


@pytest.fixture(autouse=True)
def invariants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def complete(engine: EngineHarness, prompt: list[int], **body: object) -> dict[str, object]:
    return engine.run(**{"prompt": prompt, "n_predict": 4, "temperature": 0, "ignore_eos": True, **body}).result()


def n_cached(result: dict[str, object]) -> int:
    timings = result["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def test_a_prompt_that_lost_its_slot_goes_on_where_it_was(smollm2_path: Path) -> None:
    with engine_with(smollm2_path, n_slots=1) as engine:
        first = complete(engine, STORY)
        complete(engine, RECIPE)
        again = complete(engine, STORY)
    assert (n_cached(again), again["content"]) == (len(STORY) - 1, first["content"])


def test_without_the_cache_it_is_computed_again(smollm2_path: Path) -> None:
    with engine_with(smollm2_path, "--cache-ram", "0", n_slots=1) as engine:
        complete(engine, STORY)
        complete(engine, RECIPE)
        assert n_cached(complete(engine, STORY)) == 0


def test_idle_slots_give_their_cells_back_when_a_task_starts(smollm2_path: Path) -> None:
    with engine_with(smollm2_path) as engine:
        complete(engine, STORY, id_slot=0)
        complete(engine, RECIPE, id_slot=1)
        assert [slot.n_cells for slot in engine.engine.snapshot().slots] == [0, len(RECIPE) + 3]
        assert n_cached(complete(engine, STORY)) == len(STORY) - 1


def test_idle_slots_keep_theirs_where_that_is_switched_off(smollm2_path: Path) -> None:
    with engine_with(smollm2_path, "--no-cache-idle-slots") as engine:
        complete(engine, STORY, id_slot=0)
        complete(engine, RECIPE, id_slot=1)
        assert [slot.n_cells for slot in engine.engine.snapshot().slots] == [len(STORY) + 3, len(RECIPE) + 3]


def test_the_oldest_prompt_goes_when_the_limit_is_reached(smollm2_path: Path) -> None:
    # 22.5 KiB per cell: two prompts of 19 cells fit one MiB, a third does not
    prompts = [prompt[:16] for prompt in (STORY, RECIPE, LETTER)]
    with engine_with(smollm2_path, "--cache-ram", "1", n_slots=1) as engine:
        for prompt in prompts:
            complete(engine, prompt)
        complete(engine, [1000] * 16)  # takes the slot of the third
        assert n_cached(complete(engine, prompts[2])) == 15
        assert n_cached(complete(engine, prompts[0])) == 0


def test_a_prompt_that_only_begins_alike_gives_what_is_alike_and_nothing_else(smollm2_path: Path) -> None:
    with engine_with(smollm2_path, n_slots=1) as engine:
        alone = complete(engine, [*STORY[:30], *LETTER])
    with engine_with(smollm2_path, n_slots=1) as engine:
        complete(engine, STORY)
        complete(engine, RECIPE)
        other = complete(engine, [*STORY[:30], *LETTER])
    assert n_cached(other) == 30
    assert other["content"] == alone["content"]


def test_a_state_that_finds_no_room_leaves_an_empty_slot_and_stays_in_the_cache(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = NativePromptCache.load

    def fail(*_: object) -> None:
        monkeypatch.setattr(NativePromptCache, "load", load)

    with engine_with(smollm2_path, n_slots=1) as engine:
        first = complete(engine, STORY)
        complete(engine, RECIPE)
        monkeypatch.setattr(NativePromptCache, "load", fail)
        failed = complete(engine, STORY)
        assert (n_cached(failed), failed["content"]) == (0, first["content"])


def test_a_prompt_for_which_the_pool_has_no_room_is_computed_and_nobody_tries_to_load_it(
    smollm2_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    long_story = list(range(100, 300))
    with engine_with(smollm2_path) as engine:
        first = complete(engine, long_story, id_slot=0)
        complete(engine, RECIPE, id_slot=0)
        running = engine.start(prompt=list(range(400, 780)), n_predict=100, id_slot=1, ignore_eos=True, stream=True)
        engine.wait_for_tokens(running, 1)
        again = complete(engine, long_story)
        engine.wait(running)
        assert (n_cached(again), again["content"]) == (0, first["content"])
    flush_log()  # another thread writes it
    assert "failed to" not in capfd.readouterr().err
    assert not [record for record in caplog.records if "cached prompt" in record.getMessage()]  # not above debug


def test_an_exchange_that_fails_ends_its_own_request_and_no_other(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = PromptCache.exchange

    def fail_once(*_: object) -> None:
        monkeypatch.setattr(PromptCache, "exchange", exchange)
        raise MemoryError("no memory for the copy")

    with engine_with(smollm2_path) as engine:
        monkeypatch.setattr(PromptCache, "exchange", fail_once)
        bad = engine.run(prompt=STORY, n_predict=2)
        good = engine.run(prompt=RECIPE, n_predict=2)
        error = bad.error()
        assert error is not None
        assert error["message"] == "got exception: no memory for the copy"
        assert good.error() is None
