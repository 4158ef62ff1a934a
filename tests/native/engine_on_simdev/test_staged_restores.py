"""Restores through staging memory of a running engine: no cells on the way there, cells and running in one pass."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies, observe
from pyggml_server.engine.slots.copy_in_flight import CopyStep
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.messages import Cancelled, Finished

from tests.engine.harness import TIMEOUT_S, EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import HeldPrefetches, RowWatch
from tests.native.simdev_library import SimdevLibrary

STAGING_MIB = 16


@pytest.fixture
def prefetches(simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> HeldPrefetches:
    """Ways to staging memory of the slots that the test names are held until it releases them."""
    return HeldPrefetches(simdev, monkeypatch)


def start_held(harness: EngineHarness, prefetches: HeldPrefetches, n_predict: int, n_prompt: int = 12) -> Running:
    """A chat in slot 0 that was parked and whose state is held on its way to staging memory."""
    prefetches.slot_ids = {0}
    running = harness.start(**chat(0, n_predict, n_prompt, stream=True, id_slot=0))
    prefetches.wait_for_one()
    return running


def cells_used(harness: EngineHarness) -> int:
    return harness.engine.snapshot().counters.kv_cells_used


def test_while_a_restore_is_under_way_in_staging_the_pool_shows_its_cells_as_free(
    model: Path,
    prefetches: HeldPrefetches,
    rows: RowWatch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        watched(monkeypatch, caplog),
        engine(model, every_n_tokens=60, n_slots=2, staging_mib=STAGING_MIB) as harness,
    ):
        comes_back = start_held(harness, prefetches, n_predict=100)
        stays = harness.start(**chat(1, 50, stream=True, id_slot=1))
        harness.wait(stays)  # all of it, prompt and tokens, during the copy
        snapshot = harness.engine.snapshot()
        assert stays.result()["tokens_predicted"] == 50
        assert (snapshot.slots[0].state, snapshot.slots[0].is_transferring) == ("restoring", True)
        assert (snapshot.slots[0].n_cells, snapshot.counters.kv_cells_used) == (0, snapshot.slots[1].n_cells)
        assert (comes_back.n_tokens(), comes_back.notices()) == (61, ["preempted"])
        prefetches.release()
        harness.wait(comes_back)
        counters = harness.engine.snapshot().counters
        assert comes_back.result()["tokens_predicted"] == 100
        assert 0 < counters.restore_prefetch_seconds_total <= counters.restore_seconds_total
        assert counters.restore_issue_seconds_total > 0
        assert is_at_rest(harness)
    assert (rows.n_compared, rows.differing) == (1, [])


def fill_up(harness: EngineHarness, prefetches: HeldPrefetches) -> tuple[Running, Running]:
    """A chat of 140 cells on its way back, and a prompt of 150: the pool of 256 cells has no room for both."""
    comes_back = start_held(harness, prefetches, n_predict=30, n_prompt=120)
    return comes_back, harness.start(**chat(1, 10, n_prompt=150, stream=True, id_slot=1))


def test_cells_that_are_promised_to_a_restore_are_given_to_nobody_else(
    model: Path, prefetches: HeldPrefetches, rows: RowWatch, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(model, n_ctx=256, every_n_tokens=20, n_slots=2, rotate_s=0, staging_mib=STAGING_MIB) as harness:
        comes_back, late = fill_up(harness, prefetches)
        prefetches.release()
        harness.wait(comes_back, late)
        assert n_finished([comes_back, late]) == 2
        assert is_at_rest(harness)
    assert "restore refused" not in caplog.text
    assert rows.differing == []


def test_a_planted_promise_that_is_not_counted_leaves_a_restore_without_cells(
    model: Path, prefetches: HeldPrefetches, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observe, "n_promised_cells", lambda _slots: 0)
    with engine(model, n_ctx=256, every_n_tokens=20, n_slots=2, rotate_s=0, staging_mib=STAGING_MIB) as harness:
        comes_back, late = fill_up(harness, prefetches)
        harness.wait_for_tokens(late, 1)
        prefetches.release()
        harness.wait(comes_back, late)
    assert "restore refused" in caplog.text


def test_cancel_on_the_way_to_staging_leaves_no_slot_stuck_and_nothing_held(
    model: Path, prefetches: HeldPrefetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = endings.cancel

    def release_and_cancel(state: EngineState, slot: Slot) -> None:
        prefetches.release()  # not before: it would have come back
        cancel(state, slot)

    monkeypatch.setattr(endings, "cancel", release_and_cancel)
    with engine(model, every_n_tokens=10, n_slots=2, staging_mib=STAGING_MIB) as harness:
        running = start_held(harness, prefetches, n_predict=200)
        harness.cancel(running)
        harness.wait(running)
        assert isinstance(running.last(), Cancelled)
        assert (is_at_rest(harness), cells_used(harness)) == (True, 0)
        again = harness.run(**chat(1, 15, id_slot=0))  # parked and restored itself
        assert isinstance(again.last(), Finished)
        assert harness.engine.snapshot().counters.restores_total == 1


def test_an_engine_that_stops_with_a_state_on_its_way_to_staging_waits_for_it(
    model: Path, prefetches: HeldPrefetches
) -> None:
    harness = engine(model, every_n_tokens=10, n_slots=2, staging_mib=STAGING_MIB)
    with harness:
        running = start_held(harness, prefetches, n_predict=200)
        harness.engine.stop()
        prefetches.release()
        harness.wait(running)
    assert isinstance(running.last(), Cancelled)


def test_a_chat_that_is_parked_when_it_is_full_is_shifted_when_it_is_back(model: Path) -> None:
    flags = ["--context-shift", "--kv-unified-per-slot", "128"]
    with engine(model, *flags, n_slots=2, every_n_tokens=27, rotate_s=0, staging_mib=STAGING_MIB) as harness:
        running = harness.run(**chat(0, 50, n_prompt=100))  # 126 cells at its first park, 127 are full
        assert running.result()["tokens_predicted"] == 50
        assert harness.engine.snapshot().counters.restores_total == 1


def test_answers_that_share_a_prompt_hold_no_cells_on_their_way_to_staging(
    model: Path, prefetches: HeldPrefetches, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        watched(monkeypatch, caplog),
        engine(model, every_n_tokens=20, n_slots=4, staging_mib=STAGING_MIB) as harness,
    ):
        prefetches.slot_ids = {0, 1, 2, 3}
        family = harness.start(**chat(0, 30, n_prompt=60, n=3))
        prefetches.wait_for_one()
        prefetches.slot_ids = set()
        alone = harness.run(**chat(1, 10, n_prompt=30))
        assert isinstance(alone.last(), Finished)
        assert cells_used(harness) == 39  # of the one that was alone
        prefetches.release()
        harness.wait(family)
        assert [family.result(i)["tokens_predicted"] for i in range(3)] == [30, 30, 30]


def test_a_draft_comes_back_with_its_target(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    draft = ["-md", str(model), "-ngld", "99", "--spec-type", "draft-simple"]
    texts = []
    for every_n_tokens in (0, 9):
        with (
            watched(monkeypatch, caplog),
            engine(model, *draft, every_n_tokens=every_n_tokens, staging_mib=STAGING_MIB) as harness,
        ):
            texts.append(harness.run(**chat(0, 40)).text())
            counters = harness.engine.snapshot().counters
            assert (counters.restore_prefetch_seconds_total > 0) == (every_n_tokens > 0)
    assert texts[0] == texts[1]


def test_restores_that_do_not_fit_into_staging_together_go_one_after_the_other(
    model: Path,
    prefetches: HeldPrefetches,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_queued = threading.Event()
    steps: list[CopyStep] = []
    issue = copies._issue

    def noted_issue(state: EngineState, unit: list[Slot], ordered_s: float) -> CopyStep:
        steps.append(issue(state, unit, ordered_s))
        if steps[-1] is CopyStep.QUEUED:
            is_queued.set()  # no row is read meanwhile: that would wait for the held copy
        return steps[-1]

    monkeypatch.setattr(copies, "_issue", noted_issue)
    # 160 cells of 3 layers have 0.35 MiB, and the half for restores has 0.5
    with watched(monkeypatch, caplog), engine(model, every_n_tokens=20, n_slots=2, staging_mib=1) as harness:
        first = start_held(harness, prefetches, n_predict=30, n_prompt=140)
        second = harness.start(**chat(1, 30, n_prompt=140, id_slot=1))
        assert is_queued.wait(TIMEOUT_S)
        prefetches.release()
        harness.wait(first, second)
        assert n_finished([first, second]) == 2
        assert is_at_rest(harness)
    assert set(steps) == {CopyStep.PREFETCH, CopyStep.QUEUED}
