"""Asynchronous parks of a running engine, on a device whose copies come as late as they may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.preemption import waits
from pyggml_server.engine.transfers.async_transfer import AsyncTransfer
from pyggml_server.engine.transfers.transfer import SyncTransfer

from tests.native.engine_on_simdev.chats import chat, engine, is_at_rest, n_finished
from tests.native.engine_on_simdev.parks import HeldParks, RowWatch
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
        harness.wait(stays)  # all of it, prompt and tokens, during the copy
        assert stays.result()["tokens_predicted"] == 50
        assert (leaves.n_tokens(), leaves.notices()) == (61, ["preempted"])
        slot = harness.engine.snapshot().slots[0]
        assert (slot.state, slot.is_transferring, simdev.n_held > 0) == ("preempting", True, True)
        held_parks.release()
        harness.wait(leaves)
        assert leaves.result()["tokens_predicted"] == 100
        assert is_at_rest(harness)


@pytest.mark.parametrize(("runs_ahead", "n_tokens"), [(False, 60), (True, 61)])
def test_a_forced_park_comes_one_token_later_where_generation_runs_ahead(
    model: Path, held_parks: HeldParks, runs_ahead: bool, n_tokens: int
) -> None:
    """The batch of that token is on the device when the park is decided. No part of the stream is without a token."""
    held_parks.slot_ids = {0}
    with engine(model, every_n_tokens=60, n_slots=2, runs_ahead=runs_ahead) as harness:
        leaves = harness.start(**chat(0, 100, stream=True, id_slot=0))
        harness.wait_for_notice(leaves, "preempted")
        assert leaves.n_tokens() == n_tokens
        held_parks.release()
        harness.wait(leaves)
        parts = leaves.parts()
        assert leaves.result()["tokens_predicted"] == len(parts) == 100
        assert all(part["tokens"] for part in parts)


def fail_while_a_park_is_held(model: Path, held_parks: HeldParks) -> None:
    held_parks.slot_ids = {0}
    with engine(model, every_n_tokens=10, n_slots=2) as harness:
        leaves = harness.start(**chat(0, 50, stream=True, id_slot=0))
        harness.wait_for_notice(leaves, "preempted")
        raise ZeroDivisionError


def test_a_test_that_fails_while_a_copy_is_held_ends(model: Path, held_parks: HeldParks) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_while_a_park_is_held(model, held_parks)
    assert held_parks.n_held == 1


def test_no_preempt_async_really_switches_it_off(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_by: list[str] = []
    for kind in (SyncTransfer, AsyncTransfer):
        save = kind.save

        def noted_save(self: Any, seq_id: int, save: Any = save, name: str = kind.__name__, **how: bool) -> None:
            saved_by.append(name)
            save(self, seq_id, **how)

        monkeypatch.setattr(kind, "save", noted_save)
    for use_async, expected in ((True, {"AsyncTransfer"}), (False, {"SyncTransfer"})):
        saved_by.clear()
        with engine(model, every_n_tokens=10, use_async=use_async) as harness:
            harness.run(**chat(1, 35))
        assert set(saved_by) == expected


def test_a_shift_while_a_copy_runs_waits_for_it(
    model: Path, held_parks: HeldParks, rows: RowWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    wait_before_shift, wait = waits.before_shift, AsyncTransfer.wait
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

    monkeypatch.setattr(waits, "before_shift", noted_wait_before_shift)
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
