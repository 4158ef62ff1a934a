"""The pool refuses what by the count should fit: somebody is parked, and only who cannot fit even alone fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyggml_server.messages import Finished
from pyggml_server.native.runtime import BatchArrays, Row, Runtime, Sample

from tests.engine.harness import EngineHarness
from tests.engine.invariants import watched

ROOM = "Context size has been exceeded."


def argv(model: Path) -> list[str]:
    return ["-m", str(model), "-c", "512", "-np", "3", "--kv-unified", "-fa", "on", "-t", "1"]


def body(i: int, n_prompt: int, n_predict: int) -> dict[str, object]:
    return {"prompt": [100 + i] * n_prompt, "n_predict": n_predict, "ignore_eos": True, "cache_prompt": False}


def let_it_hold(monkeypatch: pytest.MonkeyPatch, n_cells: int) -> None:
    """The pool says 512 cells and refuses every batch that would take it beyond `n_cells`."""
    step = Runtime.step

    def refuse(
        runtime: Runtime, batch: BatchArrays, rows: Sequence[Row], *overlapped: Callable[[], None]
    ) -> tuple[int, list[Sample]]:
        if runtime.context.n_cells_used() + len(batch.token) > n_cells:
            return 1, []
        return step(runtime, batch, rows, *overlapped)

    monkeypatch.setattr(Runtime, "step", refuse)


def test_chats_that_fit_by_the_count_only_are_parked_and_all_finish(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_it_hold(monkeypatch, 200)
    with watched(monkeypatch, caplog), EngineHarness(argv(narrow_path)) as harness:
        chats = [harness.start(**body(i, 20, 100)) for i in range(3)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [100] * 3
    assert counters.preemptions_total == counters.restores_total >= 1
    assert counters.requests_failed_total == 0


def test_a_request_that_the_pool_refuses_even_alone_fails_and_the_others_do_not(
    narrow_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_it_hold(monkeypatch, 200)
    with watched(monkeypatch, caplog), EngineHarness(argv(narrow_path)) as harness:
        too_long = harness.start(**body(0, 100, 300))
        others = [harness.start(**body(i, 20, 60)) for i in (1, 2)]
        harness.wait(too_long, *others)
    error = too_long.error()
    assert error is not None
    assert error["message"] == ROOM
    assert all(isinstance(chat.last(), Finished) for chat in others)


def test_an_error_of_the_decode_ends_those_who_run_and_not_who_is_parked(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The smaller chat is parked when 512 cells are full, and stays out until the other ends."""
    breaks_next = threading.Event()
    step = Runtime.step

    def break_once(
        runtime: Runtime, batch: BatchArrays, rows: Sequence[Row], *overlapped: Callable[[], None]
    ) -> tuple[int, list[Sample]]:
        if breaks_next.is_set():
            breaks_next.clear()
            return -3, []
        return step(runtime, batch, rows, *overlapped)

    monkeypatch.setattr(Runtime, "step", break_once)
    with watched(monkeypatch, caplog), EngineHarness(argv(smollm2_path)) as harness:
        running = harness.start(**body(0, 300, 180))
        parked = harness.start(**body(1, 150, 150))
        harness.wait_for_notice(parked, "preempted")
        breaks_next.set()
        harness.wait(running, parked)
    error = running.error()
    assert error is not None
    assert error["message"] == "Compute error."
    assert parked.result()["tokens_predicted"] == 150
