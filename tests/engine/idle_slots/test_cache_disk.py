"""The prompt cache in files (--cache-disk): prompts survive a restart, and a disk that fails loses none."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.background import prompt_files

from tests.engine.harness import TIMEOUT_S, EngineHarness, Running
from tests.engine.idle_slots.test_prompt_cache import complete, n_cached
from tests.engine.invariants import watched
from tests.engine.window_model import WINDOW, write_window_model

#: A cell of the model has 22.5 KiB: a prompt of 33 cells has 0.7 MiB. The cache holds one of them, files hold more.
CACHE_RAM_MIB = "1"
PROMPTS = [list(range(first, first + 30)) for first in (100, 300, 500, 700)]
STORY, RECIPE, LETTER, _ = PROMPTS


@pytest.fixture(autouse=True)
def _watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with watched(monkeypatch, caplog):
        yield


def engine(model: Path, folder: Path, *flags: str, n_slots: int = 1, cache_disk_mib: int = 64) -> EngineHarness:
    size = ["-c", "512", "-np", str(n_slots), "--kv-unified", "-t", "1", "--cache-ram", CACHE_RAM_MIB]
    options = PreemptOptions(cache_disk_mib=cache_disk_mib, disk_path=str(folder))
    return EngineHarness(["-m", str(model), *size, *flags], options)


def files(folder: Path) -> list[Path]:
    return sorted((folder / f"pyggml-prompts-{os.geteuid()}").glob("*.prompt"))


def n_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def wait_until_written(harness: EngineHarness, n: int) -> None:
    harness.wait_for_counters(lambda counters: counters.cache_disk_written_total >= n)


def test_a_restart_finds_the_prompts_of_slots_and_of_the_cache_and_answers_the_same(
    smollm2_path: Path, tmp_path: Path
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        first = [complete(harness, prompt, n_predict=8) for prompt in PROMPTS]
    assert len(files(tmp_path)) == len(PROMPTS)
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}
    assert files(tmp_path)[0].parent.stat().st_mode & 0o777 == 0o700
    with engine(smollm2_path, tmp_path) as harness:
        again = [complete(harness, prompt, n_predict=8) for prompt in PROMPTS]
        counters = harness.engine.snapshot().counters
    assert [answer["content"] for answer in again] == [answer["content"] for answer in first]
    assert [n_cached(answer) for answer in again] == [len(prompt) - 1 for prompt in PROMPTS]
    assert counters.cache_disk_read_total == len(PROMPTS)


def test_a_prompt_that_has_no_room_in_memory_goes_to_a_file_and_comes_back(smollm2_path: Path, tmp_path: Path) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        first = complete(harness, STORY)
        complete(harness, RECIPE)
        complete(harness, LETTER)  # the cache has no room for the recipe beside the story
        wait_until_written(harness, 1)
        counters = harness.engine.snapshot().counters
        assert counters.cache_disk_bytes == n_bytes(tmp_path) > 33 * 22 * 1024
        again = complete(harness, STORY)
        assert harness.engine.snapshot().counters.cache_disk_read_total == 1
    assert (n_cached(again), again["content"]) == (len(STORY) - 1, first["content"])


def test_what_a_chat_continues_takes_the_place_of_its_beginning(smollm2_path: Path, tmp_path: Path) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        complete(harness, STORY, n_predict=1)
    (before,) = files(tmp_path)
    with engine(smollm2_path, tmp_path, "--cache-ram", "8") as harness:
        assert n_cached(complete(harness, [*STORY, *RECIPE])) == len(STORY)
    (after,) = files(tmp_path)
    assert before.name != after.name
    with engine(smollm2_path, tmp_path, "--cache-ram", "8") as harness:
        assert n_cached(complete(harness, [*STORY, *RECIPE, 7])) == len(STORY + RECIPE)


def test_checkpoints_are_stored_with_their_prompt(smollm2_path: Path, tmp_path: Path) -> None:
    """Of a memory with a window: without its checkpoint nothing before the window would be of use."""
    model = write_window_model(tmp_path / "window.gguf", smollm2_path)
    story = list(range(100, 100 + 4 * WINDOW))
    with engine(model, tmp_path, "--ubatch-size", "16") as harness:
        complete(harness, story, n_predict=16)
    with engine(model, tmp_path, "--ubatch-size", "16") as harness:
        branched = complete(harness, [*story[:-2], 7, 8, 9])
        assert harness.engine.snapshot().counters.cache_disk_read_total == 1
    assert n_cached(branched) > 2 * WINDOW


def test_a_full_disk_is_said_once_and_everything_is_answered(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(_fd: int, _at: int, n: int) -> None:
        if n > 1:  # the disk is tried out
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with engine(smollm2_path, tmp_path) as harness:
        first = [complete(harness, prompt)["content"] for prompt in PROMPTS]
        again = [complete(harness, prompt)["content"] for prompt in PROMPTS]
    assert first == again
    assert files(tmp_path) == []
    assert caplog.text.count("No space left on device") == 1


@pytest.mark.parametrize("fault", ["head", "tokens", "state", "shorter"])
def test_a_file_that_was_spoilt_is_removed_and_its_prompt_computed_again(
    fault: str, smollm2_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        first = complete(harness, STORY)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    at = {"head": 20, "tokens": 150, "state": len(data) - 5, "shorter": 0}[fault]
    data[at] ^= fault != "shorter"
    path.write_bytes(data[: 5000 if fault == "shorter" else len(data)])
    with engine(smollm2_path, tmp_path) as harness:
        again = complete(harness, STORY)
        assert n_cached(again) == 0
        assert not path.exists()
    assert again["content"] == first["content"]
    said = "is lost and will be computed again" if fault == "state" else "1 files in"
    assert caplog.text.count(said) == 1


def test_a_model_with_other_settings_finds_nothing_of_the_first_and_leaves_it_alone(
    smollm2_path: Path, tmp_path: Path
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        complete(harness, STORY)
    with engine(smollm2_path, tmp_path, "-ctk", "q8_0") as harness:
        assert n_cached(complete(harness, STORY)) == 0
        assert harness.engine.snapshot().counters.cache_disk_bytes == n_bytes(tmp_path)
    assert len({path.name.split("-")[0] for path in files(tmp_path)}) == 2
    with engine(smollm2_path, tmp_path) as harness:
        assert n_cached(complete(harness, STORY)) == len(STORY) - 1


def test_files_keep_to_their_limit_and_the_oldest_goes_first_whose_model_it_was(
    smollm2_path: Path, tmp_path: Path
) -> None:
    limit_bytes = 2 << 20  # two prompts
    with engine(smollm2_path, tmp_path, "-ctk", "q8_0", cache_disk_mib=2) as harness:
        complete(harness, STORY)
    with engine(smollm2_path, tmp_path, cache_disk_mib=2) as harness:
        for n, prompt in enumerate(PROMPTS):
            complete(harness, prompt)
            wait_until_written(harness, max(0, n - 1))
            assert n_bytes(tmp_path) <= limit_bytes
            assert harness.engine.snapshot().counters.cache_disk_bytes <= limit_bytes
    assert len(files(tmp_path)) == 2
    with engine(smollm2_path, tmp_path, cache_disk_mib=2) as harness:
        assert [n_cached(complete(harness, prompt)) > 0 for prompt in (PROMPTS[3], PROMPTS[0])] == [True, False]


def test_a_folder_that_is_removed_loses_nothing(
    smollm2_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        first = complete(harness, STORY)
    with engine(smollm2_path, tmp_path) as harness:
        shutil.rmtree(files(tmp_path)[0].parent)
        again = [complete(harness, prompt) for prompt in PROMPTS]
    assert (n_cached(again[0]), again[0]["content"]) == (0, first["content"])
    assert caplog.text.count("is lost and will be computed again") == 1
    assert caplog.text.count("no prompt goes to") == 1


def test_a_second_server_of_the_same_model_leaves_the_files_to_the_first(
    smollm2_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        complete(harness, STORY)
        with engine(smollm2_path, tmp_path) as second:
            first = complete(second, STORY)
            assert second.engine.snapshot().counters.cache_disk_limit_bytes == 0
        assert files(tmp_path) == []
        assert complete(harness, STORY)["content"] == first["content"]
    assert len(files(tmp_path)) == 1
    assert caplog.text.count("another server has the prompts of this model") == 1


def test_without_a_prompt_cache_in_memory_there_are_no_files(
    smollm2_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(smollm2_path, tmp_path, "--cache-ram", "0") as harness:
        complete(harness, STORY)
    assert "no files (--cache-disk): --cache-ram is 0" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_link_ends_the_start(smollm2_path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"pyggml-prompts-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RuntimeError, match=r"--cache-disk: no files can be kept in .*--disk-path"):
        engine(smollm2_path, tmp_path).__enter__()


class HeldRead:
    """Reads of states that take as long as the test likes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        preadv = os.preadv

        def held(fd: int, pieces: list[memoryview], at: int) -> int:
            if len(pieces[0]) > 100_000:
                self.has_begun.set()
                assert self.may_end.wait(TIMEOUT_S)
            return preadv(fd, pieces, at)

        monkeypatch.setattr(os, "preadv", held)

    def __enter__(self) -> HeldRead:
        return self

    def __exit__(self, *_: object) -> None:
        self.may_end.set()


def story_that_is_read(harness: EngineHarness, disk: HeldRead) -> Running:
    running = harness.start(prompt=STORY, n_predict=4, temperature=0, ignore_eos=True)
    assert disk.has_begun.wait(TIMEOUT_S)
    return running


def test_others_run_while_a_prompt_is_read_and_one_who_leaves_meanwhile_ends(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        complete(harness, STORY)
    with engine(smollm2_path, tmp_path, n_slots=2) as harness, HeldRead(monkeypatch) as disk:
        running = story_that_is_read(harness, disk)
        complete(harness, RECIPE)
        leaver = harness.start(prompt=[*STORY, 5], n_predict=4)
        harness.cancel(leaver)
        harness.wait(leaver)
        assert not disk.may_end.is_set()
        disk.may_end.set()
        harness.wait(running)
    assert n_cached(running.result()) == len(STORY) - 1


def test_a_disk_that_hangs_is_not_waited_for(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(smollm2_path, tmp_path) as harness:
        first = complete(harness, STORY)
    monkeypatch.setattr(prompt_files, "PATIENCE_S", 0.0)
    with engine(smollm2_path, tmp_path) as harness, HeldRead(monkeypatch) as disk:
        running = story_that_is_read(harness, disk)
        harness.wait(running)
        assert not disk.may_end.is_set()
    assert (n_cached(running.result()), running.result()["content"]) == (0, first["content"])
