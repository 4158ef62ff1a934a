"""Slots to files and back while others decode: who goes on, what is in the file, what a bad file leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.messages import Answered, Call, Cancel, Cancelled, SlotAction, SlotVerb
from pyggml_server.native import slot_file

from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched
from tests.native.engine_on_simdev.background_copies import HeldCopies, HeldHelper
from tests.native.engine_on_simdev.chats import chat, engine

N_KEPT = 43  # a prompt of 40 and 4 tokens, of which the last is not decoded


@pytest.fixture(autouse=True)
def invariants(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def kept(number: int, **more: object) -> dict[str, object]:
    return chat(number, 4, n_prompt=40, cache_prompt=True, temperature=0, **more)


def n_cached(running: Running) -> int:
    timings = running.result()["timings"]
    assert isinstance(timings, dict)
    return int(timings["cache_n"])


def start(harness: EngineHarness, verb: SlotVerb, slot_id: int, path: Path) -> int:
    return harness.start_call(lambda task_id: SlotAction(task_id, verb, slot_id, path.name, str(path)))


def act(harness: EngineHarness, verb: SlotVerb, slot_id: int, path: Path) -> dict[str, object]:
    def make(task_id: int) -> Call:
        return SlotAction(task_id, verb, slot_id, path.name, str(path))

    return harness.call(make)


def write_at_once(harness: EngineHarness, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the memory that it would pass through."""
    with monkeypatch.context() as patch:
        patch.setattr(BounceBuffer, "holds", lambda *_: False)
        act(harness, SlotVerb.SAVE, 0, path)


@pytest.mark.parametrize("staging_mib", [0, 16])
def test_a_file_is_the_one_that_is_written_at_once_and_comes_back(
    staging_mib: int, model: Path, tmp_path: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlapped, at_once = tmp_path / "overlapped.bin", tmp_path / "at once.bin"
    with engine(model, n_slots=2, staging_mib=staging_mib) as harness:
        text = harness.run(**kept(0, id_slot=0)).text()
        saved = act(harness, SlotVerb.SAVE, 0, overlapped)
        assert (saved["n_saved"], saved["n_written"], held.n_saves) == (N_KEPT, overlapped.stat().st_size, 1)
        write_at_once(harness, at_once, monkeypatch)
        assert (held.n_saves, overlapped.read_bytes() == at_once.read_bytes()) == (1, True)
        restored = act(harness, SlotVerb.RESTORE, 1, at_once)
        assert (restored["n_restored"], restored["n_read"], held.n_restores) == (N_KEPT, saved["n_written"], 1)
        again = harness.run(**kept(0, id_slot=1))
        assert (n_cached(again), again.text()) == (39, text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at once.bin", "overlapped.bin"]


@pytest.mark.parametrize("verb", [SlotVerb.SAVE, SlotVerb.RESTORE])
def test_tokens_of_others_keep_coming_while_a_file_is_on_its_way(
    verb: SlotVerb, model: Path, tmp_path: Path, held: HeldCopies
) -> None:
    file = tmp_path / "slot.bin"
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        held.hold(verb.value)
        task_id = start(harness, verb, 0, file)
        held.wait_for_one()
        stays = harness.run(**chat(1, 50, id_slot=1))
        assert stays.result()["tokens_predicted"] == 50
        assert task_id not in harness._calls
        held.release()
        assert isinstance(harness.last_of_call(task_id), Answered)


DRAFT = ["-ngld", "99", "--spec-type", "draft-simple", "-md"]


@pytest.mark.parametrize("ram_mib", [0, None])
@pytest.mark.parametrize("verb", [SlotVerb.SAVE, SlotVerb.RESTORE])
@pytest.mark.parametrize("memory", ["no prompt cache", "draft model"])
def test_they_keep_coming_without_a_prompt_cache_and_with_a_draft_model_too(
    memory: str, verb: SlotVerb, ram_mib: int | None, model: Path, tmp_path: Path, held: HeldCopies
) -> None:
    without_cache = ["--cache-ram", "0", "--slot-save-path", f"{tmp_path}/"]
    flags = without_cache if memory == "no prompt cache" else ["--no-cache-idle-slots", *DRAFT, str(model)]
    file = tmp_path / "slot.bin"
    with engine(model, *flags, n_slots=2, ram_mib=ram_mib) as harness:
        text = harness.run(**kept(0, id_slot=0)).text()
        stays = harness.start(**chat(1, 200, stream=True, id_slot=1))
        saved = act(harness, SlotVerb.SAVE, 0, file)
        held.hold(verb.value)
        task_id = start(harness, verb, 0, file)
        held.wait_for_one()
        harness.wait(stays)
        assert task_id not in harness._calls
        held.release()
        assert isinstance(harness.last_of_call(task_id), Answered)
        assert saved["n_written"] == file.stat().st_size
        again = harness.run(**kept(0, id_slot=0))
        assert (n_cached(again), again.text()) == (39, text)


def test_a_file_with_a_draft_model_is_the_one_that_is_written_at_once(
    model: Path, tmp_path: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlapped, at_once = tmp_path / "overlapped.bin", tmp_path / "at once.bin"
    with engine(model, *DRAFT, str(model), n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, overlapped)
        write_at_once(harness, at_once, monkeypatch)
    assert (held.n_saves, overlapped.read_bytes() == at_once.read_bytes()) == (1, True)


def test_a_slot_that_left_through_staging_runs_while_its_file_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = tmp_path / "slot.bin", tmp_path / "before.bin"
    with engine(model, n_slots=1 + 1, staging_mib=16) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, before)
        helper = HeldHelper(slot_file, "write", monkeypatch)
        task_id = start(harness, SlotVerb.SAVE, 0, file)
        helper.wait_until_there()
        assert n_cached(harness.run(**kept(0, id_slot=0))) == 39
        assert not file.exists()
        helper.go_on()
        assert isinstance(harness.last_of_call(task_id), Answered)
        assert file.read_bytes() == before.read_bytes()


@pytest.mark.parametrize("content", [None, b"", b"no sequence file at all", "cut"], ids=str)
def test_a_file_that_cannot_be_used_leaves_the_slot_as_it_was(
    content: bytes | str | None, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bad.bin"
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        if content == "cut":
            act(harness, SlotVerb.SAVE, 0, file)
            file.write_bytes(file.read_bytes()[:100])
        elif isinstance(content, bytes):
            file.write_bytes(content)
        error = act(harness, SlotVerb.RESTORE, 0, file)
        assert error["code"] == 400
        assert str(error["message"]).startswith("Unable to restore slot: ")
        assert n_cached(harness.run(**kept(0, id_slot=0))) == 39


def test_a_file_whose_rows_are_cut_off_leaves_the_slot_its_prompt(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.bin"
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        file.write_bytes(file.read_bytes()[:-1000])
        assert act(harness, SlotVerb.RESTORE, 0, file)["code"] == 400
        assert harness.engine.snapshot().slots[0].n_cells > 0
        assert n_cached(harness.run(**kept(0, id_slot=0))) > 0


def test_tokens_that_do_not_belong_to_the_rows_are_refused_and_leave_an_empty_slot(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "lies.bin"
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        file.write_bytes(without_one_token(file))
        error = act(harness, SlotVerb.RESTORE, 1, file)
        assert f"{N_KEPT - 1} tokens for {N_KEPT} positions" in str(error["message"])
        assert harness.engine.snapshot().slots[1].n_cells == 0


def without_one_token(file: Path) -> bytes:
    """The file with one token fewer than its rows have positions."""
    content = file.read_bytes()
    n_head, n_words = 12, N_KEPT + 4
    packed = np.frombuffer(content[n_head : n_head + 4 * n_words], "<i4").copy()
    packed[2] -= 1
    n_left = (n_words - 1).to_bytes(4, "little")
    return content[:8] + n_left + np.delete(packed, 5).tobytes() + content[n_head + 4 * n_words :]


@pytest.mark.parametrize("passes", ["pinned memory", "nothing"])
@pytest.mark.parametrize("fault", ["wrong tokens", "refused", "no room"])
def test_a_restore_that_fails_in_its_last_step_leaves_the_slot_its_prompt(
    fault: str, passes: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "slot.bin"
    flags = ["--no-cache-idle-slots"]
    with engine(model, *flags, n_ctx=256, n_slots=3) as harness:
        harness.run(**chat(1, 4, n_prompt=150 if fault == "no room" else 40, cache_prompt=True, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        act(harness, SlotVerb.ERASE, 0, file)
        text = harness.run(**kept(0, id_slot=0)).text()
        if fault == "wrong tokens":
            file.write_bytes(without_one_token(file))
        elif fault == "refused":
            monkeypatch.setattr(BounceBuffer, "restore", refuse)
        if passes == "nothing":
            monkeypatch.setattr(BounceBuffer, "sizes_bytes", lambda *_, **__: [1 << 40])  # copied at once
        running = harness.start(**chat(2, 60, n_prompt=120, stream=True, id_slot=1))
        harness.wait_for_tokens(running, 1)
        error = act(harness, SlotVerb.RESTORE, 0, file)
        assert error["code"] == 400, error
        harness.wait(running)
        assert harness.engine.snapshot().slots[0].n_cells == N_KEPT
        again = harness.run(**kept(0, id_slot=0))
        assert (n_cached(again), again.text()) == (39, text)


def refuse(_: BounceBuffer, seq_id: int) -> None:
    raise TransferRefusedError(f"sequence {seq_id} could not be restored: no reason")


def test_two_restores_at_once_wait_for_each_other_and_for_nothing_else(model: Path, tmp_path: Path) -> None:
    """Each keeps its own slot's prompt first, and gives idle prompts up: the other's is not idle."""
    files = [tmp_path / f"{i}.bin" for i in range(2)]
    with engine(model, "--no-cache-idle-slots", n_ctx=256, n_slots=3) as harness:
        for i, file in enumerate(files):
            harness.run(**chat(i, 4, n_prompt=90, cache_prompt=True, id_slot=i))
            act(harness, SlotVerb.SAVE, i, file)
        actions = [start(harness, SlotVerb.RESTORE, 1 - i, file) for i, file in enumerate(files)]
        ends = [harness.last_of_call(task_id) for task_id in actions]
        assert all(isinstance(end, Answered) for end in ends), ends
        assert [slot.n_cells for slot in harness.engine.snapshot().slots] == [93, 93, 0]


def test_a_file_for_which_the_pool_has_no_room_is_refused_in_llama_servers_words_without_preemption(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "large.bin"
    with engine(model, "--no-cache-idle-slots", n_ctx=256, n_slots=2, ram_mib=0) as harness:
        harness.run(**chat(0, 4, n_prompt=150, cache_prompt=True, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        error = act(harness, SlotVerb.RESTORE, 1, file)
        assert "No available space in KV cache or invalid slot save file" in str(error["message"])
        assert [slot.n_cells for slot in harness.engine.snapshot().slots] == [153, 0]


def test_idle_slots_give_their_prompts_up_for_a_file_the_oldest_first(
    model: Path, tmp_path: Path, held: HeldCopies
) -> None:
    file = tmp_path / "large.bin"
    with engine(model, "--no-cache-idle-slots", n_ctx=256, n_slots=4) as harness:
        harness.run(**chat(0, 4, n_prompt=150, cache_prompt=True, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        act(harness, SlotVerb.ERASE, 0, file)
        for i in (3, 1, 2):
            harness.run(**chat(i, 4, n_prompt=60, cache_prompt=True, id_slot=i))
        restored = act(harness, SlotVerb.RESTORE, 0, file)
        assert (restored["n_restored"], held.n_restores) == (153, 1)
        assert [slot.n_cells for slot in harness.engine.snapshot().slots] == [153, 0, 63, 0]
        again = harness.run(**chat(0, 4, n_prompt=150, cache_prompt=True, id_slot=0))
        assert n_cached(again) == 149


def test_a_file_waits_for_the_cells_of_a_prompt_on_its_way_to_the_cache(
    model: Path, tmp_path: Path, held: HeldCopies
) -> None:
    file = tmp_path / "large.bin"
    with engine(model, n_ctx=256, n_slots=4) as harness:
        harness.run(**chat(0, 4, n_prompt=150, cache_prompt=True, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        held.hold("save")
        harness.run(**chat(1, 4, n_prompt=20, cache_prompt=True, id_slot=1))
        held.wait_for_one()  # slot 0
        task_id = start(harness, SlotVerb.RESTORE, 2, file)
        harness.run(**chat(2, 20, n_prompt=8, id_slot=3))
        assert task_id not in harness._calls
        held.release()
        assert isinstance(harness.last_of_call(task_id), Answered)
        assert harness.engine.snapshot().slots[2].n_cells == 153


def test_a_slot_that_cannot_be_written_is_the_servers_fault_and_keeps_what_it_has(model: Path, tmp_path: Path) -> None:
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        error = act(harness, SlotVerb.SAVE, 0, tmp_path / "no such folder" / "x.bin")
        assert error == {"code": 500, "message": "Unable to save slot", "type": "server_error"}
        assert n_cached(harness.run(**kept(0, id_slot=0))) == 39


@pytest.mark.parametrize("ends", ["cancel", "stop"])
@pytest.mark.parametrize("stage", ["save", "write", "read", "restore"])
def test_an_action_that_is_cancelled_or_stopped_in_any_stage_ends_once_and_leaves_no_slot_stuck(
    stage: str, ends: str, model: Path, tmp_path: Path, held: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "slot.bin"
    with engine(model, n_slots=2) as harness:
        harness.run(**kept(0, id_slot=0))
        act(harness, SlotVerb.SAVE, 0, file)
        helper = HeldHelper(slot_file, stage, monkeypatch) if stage in ("write", "read") else None
        held.hold(stage)
        verb = SlotVerb.SAVE if stage in ("save", "write") else SlotVerb.RESTORE
        task_id = start(harness, verb, 0, file)
        held.wait_for_one() if helper is None else helper.wait_until_there()
        harness.engine.submit(Cancel(task_id)) if ends == "cancel" else harness.engine.stop()
        assert harness.last_of_call(task_id) == Cancelled(task_id)
        held.release() if helper is None else helper.go_on()
        if ends == "cancel":
            assert n_cached(harness.run(**kept(0, id_slot=0))) == 39
    assert [path.name for path in tmp_path.iterdir()] == ["slot.bin"]
