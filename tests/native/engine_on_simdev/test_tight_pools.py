"""Asynchronous parks where pool or host memory is short: everybody gets to the end, in the right order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import copies
from pyggml_server.engine.slots.copy_in_flight import CopyInFlight
from pyggml_server.engine.slots.slot import Slot
from pyggml_server.engine.transfers.async_transfer import AsyncTransfer
from pyggml_server.engine.transfers.transfer import TransferRefusedError

from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import RowWatch


def test_two_slots_that_overflow_together_finish_with_their_solo_tokens(model: Path, rows: RowWatch) -> None:
    solo = []
    for number in range(2):
        with engine(model, n_ctx=256, n_slots=2, rotate_s=0) as harness:
            solo.append(harness.run(**chat(number, 150, temperature=0.0)).text())
    with engine(model, n_ctx=256, n_slots=2, rotate_s=0) as harness:
        chats = [harness.start(**chat(number, 150, temperature=0.0)) for number in range(2)]
        harness.wait(*chats)
        assert harness.engine.snapshot().counters.preemptions_total >= 1
        assert [running.text() for running in chats] == solo
    assert rows.n_compared >= 1
    assert rows.differing == []


def test_a_prompt_arriving_into_a_nearly_full_pool_parks_rather_than_ends_everything(model: Path) -> None:
    with engine(model, n_ctx=512, rotate_s=0) as harness:
        three = [harness.start(**chat(i, 140, stream=True)) for i in range(3)]
        for running in three:
            harness.wait_for_tokens(running, 60)
        late = harness.start(**chat(3, 20, n_prompt=330))
        harness.wait(*three, late)
        assert n_finished([*three, late]) == 4
        assert harness.engine.snapshot().counters.preemptions_total >= 1
        assert is_at_rest(harness)


def test_two_sequences_are_parked_in_turn_under_a_budget_for_one(model: Path, rows: RowWatch) -> None:
    # 360 to 420 cells of 3 layers have 0.8 to 0.95 MiB: the second state takes the memory that the first one had
    with engine(model, n_ctx=1024, n_slots=2, every_n_tokens=60, ram_mib=1, rotate_s=0) as harness:
        first = harness.start(**chat(0, 170, n_prompt=300, stream=True))
        harness.wait_for_notice(first, "resumed")
        second = harness.start(**chat(1, 110, n_prompt=300, stream=True))
        harness.wait(first, second)
        assert n_finished([first, second]) == 2
        assert [running.notices()[:2] for running in (first, second)] == [["preempted", "resumed"]] * 2
        assert harness.engine.snapshot().counters.recomputes_total == 0
        assert is_at_rest(harness)
    assert rows.n_compared >= 2
    assert rows.differing == []


def test_rotation_with_a_budget_for_two_gives_the_parked_chat_its_turn(model: Path, rows: RowWatch) -> None:
    with engine(model, n_ctx=512, n_slots=2, rotate_s=0.005) as harness:
        chats = [harness.start(**chat(i, 120, n_prompt=180)) for i in range(2)]
        harness.wait(*chats)
        assert n_finished(chats) == 2
        assert harness.engine.snapshot().counters.rotations_total >= 1
    assert rows.differing == []


def test_rotation_with_a_budget_for_one_does_not_turn_and_says_so(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # 250 cells of 3 layers have 0.55 MiB
    with engine(model, n_ctx=512, n_slots=2, rotate_s=0.005, ram_mib=1) as harness:
        chats = [harness.start(**chat(i, 120, n_prompt=180)) for i in range(2)]
        harness.wait(*chats)
        assert n_finished(chats) == 2
        assert harness.engine.snapshot().counters.rotations_total == 0
    assert "no turn for the chat that waits: the budget cannot hold the states" in caplog.text


def test_a_parked_sequence_that_cannot_fit_fails_with_the_context_error(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_transfer: AsyncTransfer, seq_id: int) -> None:
        raise TransferRefusedError(f"no cells for sequence {seq_id}")

    monkeypatch.setattr(AsyncTransfer, "restore", refuse)
    with engine(model, every_n_tokens=10, n_slots=2) as harness:
        error = harness.run(**chat(0, 20)).error()
        assert error is not None
        assert error["message"] == "Context size has been exceeded."
        assert is_at_rest(harness)


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_back_to_back_restores_do_not_park_somebody_at_once(
    model: Path, staging_mib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    complete_park, resume = copies._complete_park, copies.resume

    def noted_complete_park(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
        order.append(f"preempting {slot.id} after {slot.active_job.n_decoded}")
        complete_park(state, slot, copy)

    def noted_resume(state: EngineState, slot: Slot, copy: CopyInFlight) -> None:
        order.append(f"restoring {slot.id} after {slot.active_job.n_decoded}")
        resume(state, slot, copy)

    monkeypatch.setattr(copies, "_complete_park", noted_complete_park)
    monkeypatch.setattr(copies, "resume", noted_resume)
    with engine(model, n_ctx=256, rotate_s=0, staging_mib=staging_mib) as harness:
        chats = [harness.start(**chat(i, 80)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
    back = {}
    for entry in order:
        what, slot_id, n_decoded = entry.split()[0], entry.split()[1], int(entry.split()[-1])
        if what == "restoring":
            back[slot_id] = n_decoded
        elif slot_id in back:
            assert n_decoded - back[slot_id] >= 3, order
    assert "restoring" in {entry.split()[0] for entry in order}


def test_a_lone_resident_too_large_for_the_margin_still_resumes(model: Path) -> None:
    with engine(model, n_ctx=256, n_slots=2, every_n_tokens=100, rotate_s=0) as harness:
        running = harness.run(**chat(0, 110, n_prompt=140))  # parked with 240 cells: 8 steps more do not fit
        assert running.result()["tokens_predicted"] == 110
        assert running.notices() == ["preempted", "resumed"]
