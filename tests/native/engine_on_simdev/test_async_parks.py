"""Asynchronous parks of a running engine, on a device whose copies come as late as they may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyggml_server.engine import landings
from pyggml_server.engine.async_transfer import AsyncTransfer
from pyggml_server.engine.slot import Slot
from pyggml_server.engine.state import EngineState
from pyggml_server.engine.transfer import SyncTransfer, TransferRefusedError
from pyggml_server.messages import Cancelled, Failed, Finished

from pyggml.transfers_in_flight import TransfersInFlight
from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import HeldParks, HeldRestores, RowWatch
from tests.native.simdev_library import SimdevLibrary


def test_forced_asynchronous_parks_give_the_same_bytes(model: Path, simdev: SimdevLibrary, rows: RowWatch) -> None:
    with engine(model, every_n_tokens=7) as harness:
        chats = [harness.start(**chat(i, 60)) for i in range(4)]
        harness.wait(*chats)
        assert n_finished(chats) == 4
        assert is_at_rest(harness)
    assert rows.n_compared >= 4 * (60 // 7 - 1)
    assert rows.differing == []
    assert simdev.n_pending == 0


def test_forced_asynchronous_parks_give_the_text_of_an_unforced_run_and_of_no_preempt_async(model: Path) -> None:
    texts = []
    kinds: list[dict[str, Any]] = [{}, {"every_n_tokens": 7}, {"every_n_tokens": 7, "use_async": False}]
    for options in kinds:
        with engine(model, **options) as harness:
            texts.append(harness.run(**chat(1, 120)).text())
            assert (harness.engine.snapshot().counters.preemptions_total > 0) == bool(options)
    assert len(set(texts[0])) > 5
    assert texts[0] == texts[1] == texts[2]


def test_the_survivors_tokens_keep_coming_while_a_park_is_in_flight(
    model: Path, held_parks: HeldParks, simdev: SimdevLibrary
) -> None:
    held_parks.slot_ids = {0}
    with engine(model, every_n_tokens=60, n_slots=2) as harness:
        leaves = harness.start(**chat(0, 100, stream=True, id_slot=0))
        harness.wait_for_notice(leaves, "preempted")
        stays = harness.start(**chat(1, 50, stream=True, id_slot=1))
        harness.wait(stays)  # all of it, prompt and tokens, beside the copy
        assert stays.result()["tokens_predicted"] == 50
        assert (leaves.n_tokens(), leaves.notices()) == (60, ["preempted"])
        slot = harness.engine.snapshot().slots[0]
        assert (slot.state, slot.is_transferring, simdev.n_held > 0) == ("preempting", True, True)
        held_parks.release()
        harness.wait(leaves)
        assert leaves.result()["tokens_predicted"] == 100
        assert is_at_rest(harness)


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


def test_no_preempt_async_really_switches_it_off(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_by: list[str] = []
    for kind in (SyncTransfer, AsyncTransfer):
        save = kind.save

        def noted_save(self: Any, seq_id: int, save: Any = save, name: str = kind.__name__) -> None:
            saved_by.append(name)
            save(self, seq_id)

        monkeypatch.setattr(kind, "save", noted_save)
    for use_async, expected in ((True, {"AsyncTransfer"}), (False, {"SyncTransfer"})):
        saved_by.clear()
        with engine(model, every_n_tokens=10, use_async=use_async) as harness:
            harness.run(**chat(1, 35))
        assert set(saved_by) == expected


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
    # 360 to 420 cells of 3 layers have 0.8 to 0.95 MiB: a restored chat must give its kept buffer back for the other
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


def test_page_locked_memory_is_kept_for_the_next_parks_within_the_budget(model: Path) -> None:
    with engine(model, every_n_tokens=10, ram_mib=1) as harness:
        assert harness.engine.snapshot().counters.pinned_pool_bytes > 0  # before anybody has parked
        for i in range(6):
            harness.run(**chat(i, 15, n_prompt=150, id_slot=i % 4))
            counters = harness.engine.snapshot().counters
            assert counters.preempt_ram_bytes == 0
            assert 0 < counters.pinned_pool_bytes <= 1024 * 1024


def test_back_to_back_restores_do_not_park_somebody_at_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    land = landings._land

    def noted(state: EngineState, slot: Slot) -> None:
        order.append(f"{slot.phase.value} {slot.id} after {slot.active_job.n_decoded}")
        land(state, slot)

    monkeypatch.setattr(landings, "_land", noted)
    with engine(model, n_ctx=256, rotate_s=0) as harness:
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


def test_a_shift_while_a_copy_runs_waits_for_it(
    model: Path, held_parks: HeldParks, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    wait_before_shift, wait = landings.wait_before_shift, AsyncTransfer.wait
    shifting = False

    def noted_wait_before_shift(state: EngineState) -> None:
        nonlocal shifting
        shifting = True
        wait_before_shift(state)
        shifting = False

    def noted_wait(transfer: AsyncTransfer) -> None:
        if shifting:
            waited.append(transfer.state_bytes)
        held_parks.release()
        wait(transfer)

    monkeypatch.setattr(landings, "wait_before_shift", noted_wait_before_shift)
    monkeypatch.setattr(AsyncTransfer, "wait", noted_wait)
    held_parks.slot_ids = {0}
    flags = ["--context-shift", "--kv-unified-per-slot", "128"]
    with engine(model, *flags, n_slots=2, every_n_tokens=50, rotate_s=0) as harness:
        parked = harness.start(**chat(0, 60, stream=True, id_slot=0))
        harness.wait_for_notice(parked, "preempted")
        shifts = harness.start(**chat(1, 45, n_prompt=100, id_slot=1))
        harness.wait(parked, shifts)
        assert shifts.result()["truncated"] is True
        assert parked.result()["tokens_predicted"] == 60
    assert len(waited) == 1
    assert (rows.n_compared, rows.differing) == (1, [])


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


def test_a_planted_early_release_of_cells_is_refused_and_without_the_guard_changes_rows(
    model: Path, held_parks: HeldParks, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncTransfer, "frees_on_landing", False)
    with engine(model, every_n_tokens=6) as harness:
        running = harness.run(**chat(0, 20))
        assert "has a copy in flight and cannot be removed" in str(running.error())
    monkeypatch.setattr(TransfersInFlight, "check_none", lambda *_: None)
    held_parks.slot_ids = {0}
    with engine(model, every_n_tokens=20, n_ctx=256) as harness:
        parked = harness.start(**chat(0, 30, stream=True, id_slot=0))
        harness.wait_for_notice(parked, "preempted")
        harness.wait(*[harness.start(**chat(i, 10, n_prompt=60)) for i in range(1, 4)])  # they take its cells
        held_parks.release()
        harness.wait(parked)
    assert rows.differing == [0]


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


def test_random_traffic_keeps_the_books_in_order(
    model: Path, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simdev.set("latency_ns", 2000)
    with watched(monkeypatch, caplog), engine(model, n_ctx=256, every_n_tokens=3, ram_mib=2) as harness:
        everyone = [harness.start(**chat(i, 5 + 3 * (i % 9), stream=i % 2 == 0)) for i in range(30)]
        for running in everyone[::4]:
            harness.cancel(running)
        harness.wait(*everyone)
        assert all(isinstance(running.last(), Finished | Cancelled | Failed) for running in everyone)
        assert is_at_rest(harness)
