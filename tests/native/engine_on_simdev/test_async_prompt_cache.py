"""The prompt cache while others decode: who goes on, what is found when, and that the bytes are those of a slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyggml_server.engine import loop
from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.background.jobs import Helper
from pyggml_server.engine.idle_slots.async_prompt_cache import AsyncPromptCache
from pyggml_server.engine.idle_slots.prompt_cache import PromptCache
from pyggml_server.engine.lifecycle.snapshot import take_snapshot
from pyggml_server.engine.slots import shared_prompt
from pyggml_server.messages import Cancelled, Finished
from pyggml_server.native.kept_prompt import KeptPrompt
from pyggml_server.native.log import flush_log
from pyggml_server.native.prompt_cache import NativePromptCache
from pyggml_server.published import Snapshot

from pyggml import PinnedPool, rows_by_position
from tests.engine.harness import TIMEOUT_S, EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.background_copies import HeldCopies, HeldHelper
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest
from tests.native.simdev_library import SimdevLibrary

KEEPS: dict[str, Any] = {"cache_prompt": True, "temperature": 0}


@pytest.fixture(autouse=True)
def invariants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


class Published:
    """The last snapshot that the engine took, and a wait for the next ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._changed = threading.Condition()
        self._last: Snapshot | None = None

        def note(*arguments: Any) -> Snapshot:
            snapshot = take_snapshot(*arguments)
            with self._changed:
                self._last = snapshot
                self._changed.notify_all()
            return snapshot

        monkeypatch.setattr(loop, "take_snapshot", note)

    def wait_for(self, holds: Callable[[Snapshot], bool]) -> None:
        """Until a snapshot is such that this holds."""
        with self._changed:
            is_so = self._changed.wait_for(lambda: self._last is not None and holds(self._last), TIMEOUT_S)
        assert is_so, self._last


def n_cached(running: Running) -> int:
    timings = running.result()["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def kept(number: int, n_predict: int = 4, **more: object) -> dict[str, object]:
    return chat(number, n_predict, n_prompt=40, **KEEPS, **more)


def settle(harness: EngineHarness) -> None:
    """Until nothing is copied any more: a request whose prompt nobody else has goes through the line behind it all."""
    harness.run(**chat(90, 1, n_prompt=8))


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_tokens_of_others_keep_coming_while_an_idle_slot_is_saved(
    staging_mib: int, model: Path, held: HeldCopies
) -> None:
    with engine(model, n_slots=3, staging_mib=staging_mib) as harness:
        harness.run(**kept(0, id_slot=0))
        held.hold("save")
        stays = harness.start(**chat(1, 50, stream=True, id_slot=1))
        held.wait_for_one()
        harness.wait(stays)  # all of it during the copy
        assert stays.result()["tokens_predicted"] == 50
        n_cells = harness.engine.snapshot().slots[0].n_cells
        assert n_cells == (0 if staging_mib else 43)  # in staging memory, or still in the pool
        held.release()
        assert n_cached(harness.run(**kept(0))) == 39  # in the slot that was never used
        assert harness.engine.snapshot().slots[0].n_cells == 0
    assert (held.n_saves > 0, held.n_restores) == (True, 1)


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_tokens_of_others_keep_coming_while_a_prompt_is_loaded(staging_mib: int, model: Path, held: HeldCopies) -> None:
    with engine(model, n_slots=2, staging_mib=staging_mib) as harness:
        first = harness.run(**kept(0, id_slot=0))
        harness.run(**kept(1, id_slot=0))
        held.hold("restore")
        waits = harness.start(**kept(0, id_slot=0))
        held.wait_for_one()
        stays = harness.run(**chat(2, 50, stream=True, id_slot=1))
        assert stays.result()["tokens_predicted"] == 50
        assert waits.messages[waits.task_ids[0]] == []
        held.release()
        harness.wait(waits)
        assert (n_cached(waits), waits.text()) == (39, first.text())


def test_a_prompt_for_which_the_pool_has_no_room_is_computed_and_nobody_tries_to_load_it(
    model: Path,
    held: HeldCopies,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """llama.cpp says of each try that it "failed to find 203 available cells", as an error."""
    found_no_room: list[bool] = []
    finds_no_room = PromptCache._finds_no_room

    def noted(*arguments: Any) -> bool:
        found_no_room.append(finds_no_room(*arguments))
        return found_no_room[-1]

    monkeypatch.setattr(PromptCache, "_finds_no_room", noted)
    large = chat(0, 4, n_prompt=200, **KEEPS)
    with engine(model, n_slots=2) as harness:
        first = harness.run(**large, id_slot=0)
        harness.run(**kept(1, id_slot=0))
        settle(harness)
        n_restores = held.n_restores
        fills = harness.start(**chat(2, 100, n_prompt=380, stream=True, id_slot=1))
        harness.wait_for_tokens(fills, 1)
        again = harness.run(**large)  # without a slot's id: one that is empty takes nothing from the cache then
        harness.wait(fills)
        assert found_no_room[-1]
        assert (n_cached(again), again.text(), held.n_restores) == (0, first.text(), n_restores)
    flush_log()  # another thread writes it
    assert "available cells" not in capfd.readouterr().err
    assert not [record for record in caplog.records if "prompt of the cache" in record.getMessage()]  # not above debug


@pytest.mark.parametrize("staging_mib", [0, 1, 16])
def test_what_is_kept_is_what_the_slot_had(staging_mib: int, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    brought: list[Any] = []
    save, put = BounceBuffer.save, KeptPrompt.put

    def watched_save(bounce: BounceBuffer, seq_id: int, sizes_bytes: list[int]) -> None:
        saved.append(rows_by_position(bounce._contexts[0].save_state(seq_id)))
        save(bounce, seq_id, sizes_bytes)

    def watched_put(prompt: KeptPrompt, states: list[Any]) -> None:
        before = states[0].tobytes()
        put(prompt, states)
        target = [bytearray(len(before))]
        prompt.copy_to([np.frombuffer(target[0], np.uint8)])
        assert bytes(target[0]) == before
        brought.append(rows_by_position(before))

    monkeypatch.setattr(BounceBuffer, "save", watched_save)
    monkeypatch.setattr(KeptPrompt, "put", watched_put)
    with engine(model, n_ctx=1024, staging_mib=staging_mib) as harness:
        for i in range(6):
            harness.run(**chat(i, 4, n_prompt=40 + 60 * i, **KEEPS))
        settle(harness)
    assert len(brought) >= 5
    assert saved[: len(brought)] == brought  # the last may not have completed


def test_a_prompt_is_found_once_it_is_whole_and_waited_for_until_then(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = HeldHelper(KeptPrompt, "put", monkeypatch)
    with engine(model, n_slots=3, staging_mib=16) as harness:
        harness.run(**kept(0, id_slot=0))
        other = harness.start(**chat(1, 200, stream=True, id_slot=1))
        helper.wait_until_there()
        waits = harness.start(**kept(0))  # the prompt is in no slot and not in the cache yet
        harness.wait(other)
        assert waits.messages[waits.task_ids[0]] == []
        helper.go_on()
        harness.wait(waits)
        assert n_cached(waits) == 39


def test_a_slot_that_waits_for_its_save_is_taken_with_what_it_holds(
    model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(model, n_slots=4, staging_mib=16) as harness:
        harness.run(**kept(0, id_slot=0))
        helper = HeldHelper(KeptPrompt, "put", monkeypatch)
        harness.run(**kept(1, id_slot=1))  # slot 0 is saved, the helper stands still
        helper.wait_until_there()
        harness.run(**kept(2, id_slot=2))  # slot 1 waits for its turn
        again = harness.run(**kept(1, n_predict=5))
        assert (n_cached(again), held.n_saves, held.n_restores) == (39, 1, 0)
        helper.go_on()


def test_a_state_larger_than_the_memory_is_kept_all_the_same(
    model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyggml_server.engine.background.memory.most_bytes", lambda _: 100_000)
    with engine(model, n_slots=2, staging_mib=16) as harness:
        for slot_id in (0, 0):
            harness.run(**chat(0, 4, n_prompt=300, id_slot=slot_id, **KEEPS))
            harness.run(**chat(1, 4, n_prompt=300, id_slot=slot_id, **KEEPS))
        assert n_cached(harness.run(**chat(0, 4, n_prompt=300, id_slot=0, **KEEPS))) == 299
    assert (held.n_saves, held.n_restores) == (0, 0)


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_a_state_for_which_memory_must_be_pinned_goes_while_others_decode_too(
    staging_mib: int, model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyggml_server.engine.background.memory.FIRST_BYTES", 1)  # one piece at load
    with engine(model, n_slots=2, staging_mib=staging_mib) as harness:
        n_first_bytes = harness.engine.snapshot().counters.side_copies_bytes
        monkeypatch.setattr(PinnedPool, "fill", lambda *_: pytest.fail("pinned while somebody may decode"))
        stays = harness.start(**chat(2, 100, stream=True, id_slot=1))
        for i in (0, 1):
            harness.run(**chat(i, 4, n_prompt=300, id_slot=0, **KEEPS))
        assert n_cached(harness.run(**chat(0, 4, n_prompt=300, id_slot=0, **KEEPS))) == 299
        harness.wait(stays)
        assert harness.engine.snapshot().counters.side_copies_bytes > n_first_bytes
    assert (held.n_saves, held.n_restores) == (2, 1)


def test_memory_that_was_pinned_for_a_large_state_is_given_back_once_the_last_chat_has_ended(
    model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes after the last token that would make the engine look once more."""
    monkeypatch.setattr("pyggml_server.engine.background.memory.FIRST_BYTES", 1)
    published = Published(monkeypatch)
    with engine(model, n_slots=2, staging_mib=16) as harness:
        n_first_bytes = harness.engine.snapshot().counters.side_copies_bytes
        stays = harness.start(**chat(2, 200, stream=True, id_slot=1))
        for i in (0, 1):
            harness.run(**chat(i, 4, n_prompt=300, id_slot=0, **KEEPS))
        published.wait_for(lambda seen: seen.counters.side_copies_bytes > n_first_bytes)
        harness.wait(stays)
        published.wait_for(lambda seen: seen.counters.side_copies_bytes == n_first_bytes)
    assert held.n_saves > 0


def test_memory_that_the_device_does_not_pin_later_leaves_copies_that_are_synchronous(
    model: Path, held: HeldCopies, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyggml_server.engine.background.memory.FIRST_BYTES", 1)
    with engine(model, n_slots=2, staging_mib=16) as harness:
        simdev.set("pin_fails_above_bytes", 0)
        for i in (0, 1):
            harness.run(**chat(i, 4, n_prompt=300, id_slot=0, **KEEPS))
        assert n_cached(harness.run(**chat(0, 4, n_prompt=300, id_slot=0, **KEEPS))) == 299
    assert (held.n_saves, held.n_restores) == (0, 0)


def test_a_prompt_that_needs_the_cells_of_a_slot_under_way_waits_for_them(model: Path, held: HeldCopies) -> None:
    with engine(model, n_ctx=256, n_slots=2) as harness:
        harness.run(**chat(0, 4, n_prompt=150, id_slot=0, **KEEPS))
        held.hold("save")
        large = harness.start(**chat(1, 4, n_prompt=150, id_slot=1, **KEEPS))
        held.wait_for_one()
        held.release()
        harness.wait(large)
        harness.run(**kept(2, id_slot=0))  # the large one's cells are given back too
        assert n_cached(harness.run(**chat(0, 4, n_prompt=150, **KEEPS))) == 149


def test_a_prompt_does_not_take_the_cells_that_a_parked_chat_was_promised(
    model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(model, n_slots=2) as harness:
        for i in (0, 1):
            harness.run(**kept(i, id_slot=0))
        monkeypatch.setattr(shared_prompt, "n_promised_cells", lambda _: 512 - 42)
        assert n_cached(harness.run(**kept(0, id_slot=0))) == 0
        monkeypatch.setattr(shared_prompt, "n_promised_cells", lambda _: 512 - 43)
        assert n_cached(harness.run(**kept(1, id_slot=0))) == 39
    assert held.n_restores == 1


@pytest.mark.parametrize("stage", ["save", "put", "copy_to", "restore"])
def test_cancel_in_every_stage_of_an_exchange_leaves_no_slot_stuck(
    stage: str, model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(model, n_slots=2) as harness:
        for i in (0, 1):
            harness.run(**kept(i, id_slot=0))
        is_copy = stage in ("save", "restore")
        helper = None if is_copy else HeldHelper(KeptPrompt, stage, monkeypatch)
        held.hold(stage)
        running = harness.start(**kept(0, id_slot=0))
        held.wait_for_one() if helper is None else helper.wait_until_there()
        harness.cancel(running)
        harness.wait(running)
        assert isinstance(running.last(), Cancelled)
        held.release() if helper is None else helper.go_on()
        assert isinstance(harness.run(**kept(2, id_slot=0)).last(), Finished)
        assert n_cached(harness.run(**kept(0, id_slot=0))) == 39  # nothing is lost
        assert is_at_rest(harness)


@pytest.mark.parametrize("stage", ["save", "put", "copy_to", "restore"])
def test_an_engine_that_stops_in_any_stage_waits_for_it(
    stage: str, model: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(model, n_slots=2) as harness:
        for i in (0, 1):
            harness.run(**kept(i, id_slot=0))
        helper = HeldHelper(KeptPrompt, stage, monkeypatch) if stage in ("put", "copy_to") else None
        held.hold(stage)
        running = harness.start(**kept(0, id_slot=0))
        held.wait_for_one() if helper is None else helper.wait_until_there()
        harness.engine.stop()
        harness.wait(running)
        held.release() if helper is None else helper.go_on()
    assert isinstance(running.last(), Cancelled)


# -- planted faults ---------------------------------------------------------------------------------------------------


def test_a_planted_prompt_that_is_found_before_it_is_whole_gives_another_text(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncPromptCache, "_bring", _add_first)
    found_whole = _run_again_after_a_save(model)
    assert not found_whole


def _add_first(kept_prompts: Any, cache: NativePromptCache, prompt: KeptPrompt) -> Any:
    cache.add(prompt)
    states = kept_prompts._copies.out.states()
    states.clear()
    yield from kept_prompts._copies.helper.run(lambda: None)


def _run_again_after_a_save(model: Path) -> bool:
    """Whether a prompt that went through the cache is all there."""
    with engine(model, n_slots=2, staging_mib=16) as harness:
        harness.run(**kept(0, id_slot=0))
        harness.run(**kept(1, id_slot=0))
        again = harness.run(**kept(0, id_slot=0))
        return again.error() is None and n_cached(again) == 39


def test_a_planted_turn_that_is_given_back_before_the_helper_is_done_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Helper.run

    def run_unawaited(helper: Helper, work: Any) -> Any:
        steps = run(helper, work)
        next(steps)
        held_back.append(steps)
        return None
        yield

    held_back: list[Any] = []
    may_go = threading.Event()

    def slow_put(_: KeptPrompt, states: list[Any]) -> None:
        assert may_go.wait(TIMEOUT_S)
        states.clear()

    monkeypatch.setattr(KeptPrompt, "put", slow_put)
    monkeypatch.setattr(Helper, "run", run_unawaited)
    with engine(model, n_slots=4, staging_mib=16) as harness:
        for i in range(3):
            harness.run(**kept(i, id_slot=i))
        settle(harness)
        may_go.set()
    assert "a view of the transfer's state is alive" in caplog.text
    caplog.clear()


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_prompts_of_a_device_go_to_files_and_the_next_start_goes_on_with_them(
    staging_mib: int, model: Path, tmp_path: Path
) -> None:
    prompts = [chat(i, 6, n_prompt=200, **KEEPS) for i in range(4)]  # the cache holds some of them

    def start() -> EngineHarness:
        files: dict[str, Any] = {"cache_disk_mib": 64, "disk_path": str(tmp_path)}
        return engine(model, "--cache-ram", "1", n_slots=2, staging_mib=staging_mib, **files)

    with start() as harness:
        for body in prompts:
            harness.run(**body)
        harness.wait_for_counters(lambda counters: counters.cache_disk_written_total > 0)  # the first prompt's
        stays = harness.start(**chat(9, 200, stream=True, id_slot=1))
        assert n_cached(harness.run(**prompts[0])) == 199
        assert harness.engine.snapshot().counters.cache_disk_read_total == 1
        harness.cancel(stays)
        harness.wait(stays)
    with start() as harness:
        anew = [harness.run(**body) for body in prompts]
        n_read = harness.engine.snapshot().counters.cache_disk_read_total
    assert [n_cached(running) for running in anew] == [199] * 4
    assert n_read == 4
