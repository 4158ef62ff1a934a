"""Cancels, stops and random traffic among copies in flight; and planted faults, which change rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.transfers.async_transfer import AsyncTransfer
from pyggml_server.messages import Cancelled, Failed, Finished

from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest
from tests.native.engine_on_simdev.parks import HeldParks, HeldRestores, RowWatch
from tests.native.simdev_library import SimdevLibrary


def test_cancel_with_a_park_in_flight_leaves_no_slot_stuck_and_no_memory_held(
    model: Path, held_parks: HeldParks
) -> None:
    held_parks.slot_ids = {0}
    with engine(model, every_n_tokens=10, n_slots=2) as harness:
        running = harness.start(**chat(0, 200, stream=True, id_slot=0))
        harness.wait_for_notice(running, "preempted")
        harness.cancel(running)
        held_parks.release()
        check_cancelled(harness, running)
    assert held_parks.n_held == 1


def test_cancel_with_a_restore_in_flight_leaves_no_slot_stuck_and_no_memory_held(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restores = HeldRestores(monkeypatch)
    with engine(model, every_n_tokens=10, n_slots=2) as harness:
        running = harness.start(**chat(0, 200, stream=True, id_slot=0))
        restores.wait_for_one()
        harness.cancel(running)
        check_cancelled(harness, running)


def check_cancelled(harness: EngineHarness, running: Running) -> None:
    """The request has ended, nothing is held, and its slot takes the next one."""
    harness.wait(running)
    assert isinstance(running.last(), Cancelled)
    assert is_at_rest(harness)
    assert isinstance(harness.run(**chat(1, 5, id_slot=0)).last(), Finished)


def test_an_engine_that_stops_with_copies_in_flight_waits_for_them(model: Path, held_parks: HeldParks) -> None:
    held_parks.slot_ids = {0}
    harness = engine(model, every_n_tokens=10, n_slots=2)
    with harness:
        running = harness.start(**chat(0, 200, stream=True, id_slot=0))
        harness.wait_for_notice(running, "preempted")
        harness.engine.stop()
        held_parks.release()
        harness.wait(running)
    assert isinstance(running.last(), Cancelled)


def test_a_planted_early_release_of_cells_is_refused(
    model: Path, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = copies._issued
    monkeypatch.setattr(copies, "_issued", lambda *arguments: replace(issued(*arguments), frees_on_completion=False))
    simdev.set("latency_ns", 5_000_000)  # so that the copy has not ended when its cells are released
    with engine(model, every_n_tokens=6) as harness:
        running = harness.run(**chat(0, 20))
        assert "has a copy in flight and cannot be removed" in str(running.error())
    simdev.set("latency_ns", 0)


def test_a_planted_early_reuse_of_a_buffer_changes_rows(
    model: Path, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = AsyncTransfer.restore

    def restore_and_reuse(transfer: AsyncTransfer, seq_id: int) -> None:
        restore(transfer, seq_id)
        transfer._native._writable_state()[-1000:] = 0  # type: ignore[attr-defined]

    monkeypatch.setattr(AsyncTransfer, "restore", restore_and_reuse)
    with engine(model, every_n_tokens=6, n_slots=2) as harness:
        harness.run(**chat(0, 20))
    assert rows.differing


@pytest.mark.parametrize("staging_mib", [0, 1])
def test_random_traffic_keeps_the_books_in_order(
    model: Path,
    staging_mib: int,
    simdev: SimdevLibrary,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    simdev.set("latency_ns", 2000)
    with (
        watched(monkeypatch, caplog),
        engine(model, n_ctx=256, every_n_tokens=3, ram_mib=2, staging_mib=staging_mib) as harness,
    ):
        everyone = [harness.start(**chat(i, 5 + 3 * (i % 9), stream=i % 2 == 0)) for i in range(30)]
        for running in everyone[::4]:
            harness.cancel(running)
        harness.wait(*everyone)
        assert all(isinstance(running.last(), Finished | Cancelled | Failed) for running in everyone)
        assert is_at_rest(harness)
