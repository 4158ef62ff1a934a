"""Cached prompts while others decode where nobody is ever parked: as llama-server in all but the time that it takes."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import waits
from pyggml_server.messages import EndReasoning, SlotAction, SlotVerb
from pyggml_server.native.kept_prompt import KeptPrompt

from tests.engine.harness import TIMEOUT_S, EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.background_copies import HeldCopies, HeldHelper
from tests.native.engine_on_simdev.chats import chat, engine

KEEPS: dict[str, Any] = {"cache_prompt": True, "temperature": 0}
N_REQUESTS = 40


@pytest.fixture(autouse=True)
def invariants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


@pytest.fixture
def bounces(monkeypatch: pytest.MonkeyPatch) -> list[BounceBuffer]:
    """Every one that is made."""
    made: list[BounceBuffer] = []
    init = BounceBuffer.__init__

    def noted_init(bounce: BounceBuffer, *words: Any, **named: Any) -> None:
        init(bounce, *words, **named)
        made.append(bounce)

    monkeypatch.setattr(BounceBuffer, "__init__", noted_init)
    return made


def without_parks(model: Path, *flags: str, **more: Any) -> EngineHarness:
    return engine(model, *flags, ram_mib=0, **more)


def kept(number: int, n_predict: int = 4, **more: object) -> dict[str, object]:
    return chat(number, n_predict, n_prompt=40, **KEEPS, **more)


def n_cached(running: Running) -> int:
    timings = running.result()["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def erase(harness: EngineHarness, slot_id: int) -> None:
    harness.call(lambda task_id: SlotAction(task_id, SlotVerb.ERASE, slot_id, "", ""))


def has_placed(harness: EngineHarness) -> None:
    """Until the engine has looked for slots for all that was submitted."""
    harness.call(lambda task_id: EndReasoning(task_id, "nobody"))


def test_tokens_of_others_keep_coming_while_an_idle_slot_is_saved(
    model: Path, held: HeldCopies, bounces: list[BounceBuffer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pyggml_server")
    with without_parks(model, n_slots=3) as harness:
        assert not any(bounce._transfers for bounce in bounces)
        harness.run(**kept(0, id_slot=0))
        held.hold("save")
        stays = harness.start(**chat(1, 50, stream=True, id_slot=1))
        held.wait_for_one()
        harness.wait(stays)
        assert stays.result()["tokens_predicted"] == 50
        held.release()
        again = harness.run(**kept(0))
        assert (n_cached(again), again.result()["id_slot"]) == (39, 2)
        erase(harness, 0)  # in line behind the copies
        assert not any(bounce._transfers for bounce in bounces)
    assert (len(bounces), held.n_restores) == (2, 1)
    assert "preemption: off, --preempt-ram is 0" in caplog.text
    assert "prompt cache: asynchronous copies" in caplog.text


def test_tokens_of_others_keep_coming_while_a_prompt_is_loaded(model: Path, held: HeldCopies) -> None:
    with without_parks(model, n_slots=2) as harness:
        first = harness.run(**kept(0, id_slot=0))
        stays = harness.start(**chat(2, 300, stream=True, id_slot=1))
        harness.run(**kept(1, id_slot=0))
        held.hold("restore")
        waits = harness.start(**kept(0, id_slot=0))
        held.wait_for_one()
        harness.wait(stays)
        assert waits.messages[waits.task_ids[0]] == []
        held.release()
        harness.wait(waits)
        assert (n_cached(waits), waits.text()) == (39, first.text())


def test_whoever_comes_while_a_prompt_is_copied_gets_the_slot_that_llama_server_gives_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = HeldHelper(KeptPrompt, "put", monkeypatch)
    with without_parks(model, n_slots=4) as harness:
        harness.run(**kept(0, id_slot=0))
        harness.run(**kept(1, id_slot=1))  # slot 0 is saved, the helper stands still
        helper.wait_until_there()
        waits = harness.start(**kept(1, n_predict=5))  # slot 1 has the prompt, and would lose it in llama-server too
        has_placed(harness)
        assert not any(slot.is_processing for slot in harness.engine.snapshot().slots)
        assert waits.messages[waits.task_ids[0]] == []
        helper.go_on()
        harness.wait(waits)
        assert (n_cached(waits), waits.result()["id_slot"]) == (39, 1)


def test_a_slot_action_waits_for_the_copies_of_those_before_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = HeldHelper(KeptPrompt, "put", monkeypatch)
    with without_parks(model, n_slots=3) as harness:
        harness.run(**kept(0, id_slot=0))
        harness.run(**kept(1, id_slot=1))
        helper.wait_until_there()
        task_id = harness.start_call(lambda task_id: SlotAction(task_id, SlotVerb.ERASE, 1, "", ""))
        has_placed(harness)
        assert task_id not in harness._calls
        helper.go_on()
        harness.last_of_call(task_id)
        assert harness.engine.snapshot().slots[1].n_cells == 0


def test_a_decode_without_room_takes_the_cells_that_are_being_saved_before_another_prompt(
    model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_room = waits.for_room

    def release_and_wait(state: EngineState) -> bool:
        held.release()
        return wait_for_room(state)

    monkeypatch.setattr(waits, "for_room", release_and_wait)
    with without_parks(model, n_ctx=256, n_slots=3) as harness:
        short = harness.start(**chat(1, 60, n_prompt=20, id_slot=1, **KEEPS))
        harness.run(**chat(0, 4, n_prompt=97, id_slot=0, **KEEPS))
        held.hold("save")
        harness.run(**chat(2, 150, n_prompt=10, id_slot=2, **KEEPS))  # for which there is no room at its end
        harness.wait(short)
        n_cells = [slot.n_cells for slot in harness.engine.snapshot().slots]
    assert n_cells == [0, 79, 159]


def what_happens(model: Path, seed: int, *, use_async: bool, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One request after the other, each while the copies of the one before it are under way if they can be."""
    chance = random.Random(seed)
    may_go = threading.Event()
    put = KeptPrompt.put

    def held_put(prompt: KeptPrompt, states: list[Any]) -> None:
        assert may_go.wait(TIMEOUT_S)
        put(prompt, states)

    seen: list[object] = []
    with monkeypatch.context() as patch, without_parks(model, n_slots=4, use_async=use_async) as harness:
        patch.setattr(KeptPrompt, "put", held_put)
        for _ in range(N_REQUESTS):
            number, n_more = chance.randrange(6), chance.randrange(20)
            prompt = [1000 + 37 * number + 3 * i for i in range(40)] + [3000 + i for i in range(n_more)]
            id_slot = chance.choice([-1, -1, -1, 0, 1, 2, 3])
            running = harness.start(**{**kept(number), "prompt": prompt, "id_slot": id_slot})
            has_placed(harness)
            may_go.set()
            harness.wait(running)
            seen.append((running.result()["id_slot"], n_cached(running)))
            may_go.clear()
        may_go.set()
    return seen


@pytest.mark.parametrize("seed", range(2))
def test_slots_and_reused_tokens_are_those_of_copies_that_stop_everybody(
    seed: int, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = what_happens(model, seed, use_async=False, monkeypatch=monkeypatch)
    assert what_happens(model, seed, use_async=True, monkeypatch=monkeypatch) == at_once
