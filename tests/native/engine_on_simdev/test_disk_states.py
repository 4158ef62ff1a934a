"""Parked states of a device that go to files and come back, while others decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import disk_states

from tests.engine.invariants import watched
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import RowWatch


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_the_rows_of_a_state_that_went_through_a_file_are_the_same(
    staging_mib: int,
    model: Path,
    rows: RowWatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Four chats take turns in a pool for two, and host memory holds two states of four."""
    chats = [chat(number, n_predict=230) for number in range(4)]
    files: dict[str, Any] = {"disk_mib": 16, "disk_path": str(tmp_path)}
    with (
        watched(monkeypatch, caplog),
        engine(model, ram_mib=1, rotate_s=0.02, staging_mib=staging_mib, **files) as harness,
    ):
        running = [harness.start(**body) for body in chats]
        harness.wait(*running)
        counters = harness.engine.snapshot().counters
        assert is_at_rest(harness)
    assert n_finished(running) == 4
    assert rows.n_compared > 0
    assert rows.differing == []
    assert counters.spills_total >= counters.fetches_total > 0
    assert (counters.recomputes_total, counters.preempt_disk_bytes) == (0, 0)


def test_chats_that_leave_while_their_states_are_written_or_read_take_no_rows_from_others(
    model: Path,
    rows: RowWatch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As above, and of every two chats one leaves when its file is under way; its pinned memory is used again."""
    n_left: list[int] = []
    poll = disk_states.poll

    def poll_and_leave(state: EngineState) -> None:
        poll(state)
        for slot in state.slots:
            if slot.on_disk is not None and slot.on_disk.is_under_way and slot.active_job.task_id % 2:
                n_left.append(slot.id)
                endings.cancel(state, slot)

    monkeypatch.setattr(disk_states, "poll", poll_and_leave)
    files: dict[str, Any] = {"disk_mib": 16, "disk_path": str(tmp_path)}
    with watched(monkeypatch, caplog), engine(model, ram_mib=1, rotate_s=0.02, **files) as harness:
        running = [harness.start(**chat(number, n_predict=230)) for number in range(8)]
        harness.wait(*running)
        assert n_finished(running) + len(n_left) == 8
    assert n_left
    assert rows.n_compared > 0
    assert rows.differing == []
