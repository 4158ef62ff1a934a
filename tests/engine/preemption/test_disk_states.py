"""Parked states in files, on a real model: a disk that works, and one that is full, slow, broken, or taken away."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.background.state_file import Bytes, StateFile
from pyggml_server.messages import Cancelled, HoldSlot

from tests.engine.harness import TIMEOUT_S, EngineHarness, Running
from tests.engine.invariants import watched

#: A cell of the model has 22.5 KiB: a state of 100 cells has 2.2 MiB, and two of them do not fit into 4 MiB.
CHAT = {"prompt": [100] * 90, "n_predict": 30, "ignore_eos": True, "stream": True, "temperature": 0}
ENDLESS = {**CHAT, "n_predict": -1, "n_keep": -1}
RAM_MIB = 4


@pytest.fixture(autouse=True)
def _watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def engine(model: Path, folder: Path, **options: object) -> EngineHarness:
    size = ["-c", "512", "-np", "3", "--kv-unified", "-fa", "on", "-t", "1"]
    given = {"ram_mib": RAM_MIB, "disk_mib": 64, "disk_path": str(folder), "rotate_s": 0, **options}
    return EngineHarness(["-m", str(model), *size, "--context-shift"], PreemptOptions(**given))  # type: ignore[arg-type]


def hold(harness: EngineHarness, slot_id: int, *, is_held: bool) -> dict[str, object]:
    return harness.call(lambda task_id: HoldSlot(task_id, slot_id, is_held))


def parked_chat(harness: EngineHarness) -> Running:
    """In slot 0, and parked by hand after a few tokens."""
    chat = harness.start(**CHAT, id_slot=0)
    harness.wait_for_tokens(chat, 5)
    assert hold(harness, 0, is_held=True)["state"] == "preempted"
    return chat


def wait_for(harness: EngineHarness, neighbour: Running, counter: str, n: int = 1) -> None:
    """Let the neighbour run until the counter is so large."""
    while getattr(harness.engine.snapshot().counters, counter) < n:
        harness.wait_for_tokens(neighbour, neighbour.n_tokens() + 1)


def end(harness: EngineHarness, *runnings: Running) -> None:
    for running in runnings:
        harness.cancel(running)
    harness.wait(*runnings)


def test_a_state_goes_to_a_file_before_the_next_park_needs_its_memory_and_its_chat_says_the_same(
    smollm2_path: Path, tmp_path: Path
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        expected = harness.run(**CHAT, id_slot=0).result()["content"]
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        wait_for(harness, neighbour, "spills_total")
        snapshot = harness.engine.snapshot()
        assert snapshot.slots[0].is_on_disk
        assert snapshot.counters.preempt_ram_bytes == 0
        assert snapshot.counters.preempt_disk_bytes == snapshot.slots[0].parked_bytes > 2_000_000
        assert list(tmp_path.iterdir()) == []
        hold(harness, 1, is_held=True)  # there is host memory for it
        hold(harness, 0, is_held=False)
        harness.wait(chat)
        end(harness, neighbour)
        counters = harness.engine.snapshot().counters
    assert chat.result()["content"] == expected
    assert chat.notices() == ["preempted", "resumed"]
    assert (counters.fetches_total, counters.recomputes_total, counters.preempt_disk_bytes) == (1, 0, 0)


def test_chats_take_turns_through_files_and_nobody_is_computed_again(smollm2_path: Path, tmp_path: Path) -> None:
    """Three chats that outgrow the pool together; host memory holds the state of one."""
    with engine(smollm2_path, tmp_path, ram_mib=7, rotate_s=0.05) as harness:
        body = {**CHAT, "prompt": [100] * 150, "n_predict": 90}
        chats = [harness.start(**body, id_slot=i) for i in range(3)]
        harness.wait(*chats)
        counters = harness.engine.snapshot().counters
    assert [chat.result()["tokens_predicted"] for chat in chats] == [90, 90, 90]
    assert counters.preemptions_total > 1
    assert counters.spills_total >= counters.fetches_total > 0
    assert counters.preempt_ram_bytes == counters.preempt_disk_bytes == 0


def test_a_full_disk_leaves_the_state_in_host_memory_and_says_so_once(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with engine(smollm2_path, tmp_path) as harness:
        expected = harness.run(**CHAT, id_slot=0).result()["content"]
        monkeypatch.setattr(os, "posix_fallocate", no_room)
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        while "No space left on device" not in caplog.text:
            harness.wait_for_tokens(neighbour, neighbour.n_tokens() + 1)
        harness.wait_for_tokens(neighbour, neighbour.n_tokens() + 5)
        assert harness.engine.snapshot().counters.preempt_disk_bytes == 0
        assert not harness.engine.snapshot().slots[0].is_on_disk
        end(harness, neighbour)
        hold(harness, 0, is_held=False)
        harness.wait(chat)
    assert chat.result()["content"] == expected
    assert caplog.text.count("No space left on device") == 1


def test_a_folder_that_is_removed_loses_nothing(
    smollm2_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "states"
    folder.mkdir()
    with engine(smollm2_path, folder) as harness:
        shutil.rmtree(folder)
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        while "no file can be made" not in caplog.text:
            harness.wait_for_tokens(neighbour, neighbour.n_tokens() + 1)
        end(harness, neighbour)
        hold(harness, 0, is_held=False)
        harness.wait(chat)
        assert harness.engine.snapshot().counters.recomputes_total == 0
    assert chat.result()["tokens_predicted"] == 30


def test_a_folder_that_is_removed_later_has_no_part_in_a_file_that_is_there(smollm2_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "states"
    folder.mkdir()
    with engine(smollm2_path, folder) as harness:
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        wait_for(harness, neighbour, "spills_total")
        shutil.rmtree(folder)
        end(harness, neighbour)
        hold(harness, 0, is_held=False)
        harness.wait(chat)
        assert harness.engine.snapshot().counters.recomputes_total == 0
    assert chat.result()["tokens_predicted"] == 30


@pytest.mark.parametrize("fault", ["changed", "shorter"])
def test_a_state_that_was_spoilt_on_the_disk_is_computed_again_and_said_once(
    fault: str,
    smollm2_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write = StateFile.write

    def write_and_spoil(file: StateFile, parts: Sequence[Bytes]) -> None:
        byte = int(parts[0][-1]) ^ 1
        write(file, parts)
        if file.n_bytes == 1:
            return  # the disk was only tried out
        if fault == "changed":
            os.pwrite(file._fd, bytes([byte]), file.n_bytes - 1)
        else:
            os.ftruncate(file._fd, 1000)

    monkeypatch.setattr(StateFile, "write", write_and_spoil)
    with engine(smollm2_path, tmp_path) as harness:
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        wait_for(harness, neighbour, "spills_total")
        end(harness, neighbour)
        hold(harness, 0, is_held=False)
        harness.wait(chat)
        counters = harness.engine.snapshot().counters
    assert chat.result()["tokens_predicted"] == 30
    assert chat.notices() == ["preempted", "resumed"]
    assert counters.recomputes_total == 1
    assert caplog.text.count("is lost and will be computed again") == 1


class SlowDisk:
    """Writes, or reads, that take as long as the test likes, from now on; a test that fails lets them end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str = "pwrite") -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        fast = getattr(os, call)

        def slow(*arguments: object) -> object:
            self.has_begun.set()
            assert self.may_end.wait(TIMEOUT_S)
            return fast(*arguments)

        monkeypatch.setattr(os, call, slow)

    def __enter__(self) -> SlowDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_end.set()


def while_it_is_written(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> tuple[SlowDisk, Running, Running]:
    """The disk, the chat whose state it has begun to write, and an endless neighbour that needs its host memory."""
    disk = SlowDisk(monkeypatch)
    chat = parked_chat(harness)
    neighbour = harness.start(**ENDLESS, id_slot=1)
    assert disk.has_begun.wait(TIMEOUT_S)
    return disk, chat, neighbour


def test_nobody_waits_for_a_slow_disk_and_what_is_parked_meanwhile_is_in_host_memory(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        disk, chat, neighbour = while_it_is_written(harness, monkeypatch)
        harness.wait_for_tokens(neighbour, neighbour.n_tokens() + 20)
        assert not harness.engine.snapshot().slots[0].is_on_disk
        disk.may_end.set()
        wait_for(harness, neighbour, "spills_total")
        end(harness, neighbour)
        hold(harness, 0, is_held=False)
        harness.wait(chat)
    assert chat.result()["tokens_predicted"] == 30


def test_a_chat_that_is_cancelled_while_it_is_written_gives_everything_back(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        disk, chat, neighbour = while_it_is_written(harness, monkeypatch)
        disk.may_end.set()
        harness.cancel(chat)
        harness.wait(chat)
        harness.wait_until_nothing_is_held()
        end(harness, neighbour)
    assert isinstance(chat.last(), Cancelled)


@pytest.mark.parametrize("call", ["pwrite", "preadv"])
def test_a_chat_that_is_cancelled_while_the_disk_hangs_ends_at_once_and_holds_nobody_up(
    call: str, smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(smollm2_path, tmp_path, ram_mib=8) as harness, SlowDisk(monkeypatch, call) as disk:
        chat = parked_chat(harness)
        neighbour = harness.start(**{**ENDLESS, "prompt": [100] * 250}, id_slot=1)
        if call == "preadv":
            wait_for(harness, neighbour, "spills_total")
            hold(harness, 0, is_held=False)
        assert disk.has_begun.wait(TIMEOUT_S)
        end(harness, neighbour)
        harness.cancel(chat)
        harness.wait(chat)
        counters = harness.engine.snapshot().counters
        assert counters.preempt_disk_bytes > 2_000_000  # until the disk has let go of it
        assert counters.preempt_ram_bytes > 2_000_000
        other = parked_chat(harness)  # in the same slot, with memory of its own
        hold(harness, 0, is_held=False)
        harness.wait(other)
        assert not disk.may_end.is_set()
        disk.may_end.set()
        harness.wait_until_nothing_is_held()
    assert isinstance(chat.last(), Cancelled)
    assert other.result()["tokens_predicted"] == 30


def test_a_server_that_ends_leaves_no_file_and_waits_for_none(smollm2_path: Path, tmp_path: Path) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        wait_for(harness, neighbour, "spills_total")
    assert isinstance(chat.last(), Cancelled)
    assert list(tmp_path.iterdir()) == []


def test_a_budget_for_no_state_writes_none(smollm2_path: Path, tmp_path: Path) -> None:
    with engine(smollm2_path, tmp_path, disk_mib=1) as harness:
        chat = parked_chat(harness)
        neighbour = harness.start(**ENDLESS, id_slot=1)
        harness.wait_for_tokens(neighbour, 20)
        assert harness.engine.snapshot().counters.preempt_disk_bytes == 0
        end(harness, chat, neighbour)


def test_a_folder_that_takes_no_file_ends_the_start(smollm2_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="--disk-path"), engine(smollm2_path, tmp_path / "nowhere"):
        pass
