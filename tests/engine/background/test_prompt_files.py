"""Prompts in files: private, whole or not there, bounded, found as llama.cpp's cache finds them. Needs no model."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.background import prompt_files
from pyggml_server.engine.background.disk import Disk
from pyggml_server.engine.background.piecewise_file import StateFileError
from pyggml_server.engine.background.prompt_file import PromptHead
from pyggml_server.engine.background.prompt_files import PromptFiles
from pyggml_server.engine.background.prompt_folder import FolderInUseError, PromptFolder
from pyggml_server.engine.background.prompt_index import Entry, PromptIndex
from pyggml_server.native.kept_prompt import KeptPrompt

ORIGIN, PLAIN, SCALED = bytes(32), bytes([1] * 32), bytes([2] * 32)
N_STATE_BYTES = 10_000
TIMEOUT_S = 60.0


def kept(tokens: list[int], n_state_bytes: int = N_STATE_BYTES, seed: int = 0) -> KeptPrompt:
    """With a state for the target and one for a draft."""
    made, views = KeptPrompt.from_file(np.array(tokens, np.int32), b"", (n_state_bytes, 7))
    random = np.random.default_rng(seed)
    for view in views:
        view[:] = random.integers(0, 256, len(view), dtype=np.uint8)
    return made


class Files:
    """A disk, the folder, and its files; restarted as a server is."""

    def __init__(self, parent: Path, limit_bytes: int = 1 << 20) -> None:
        self.disk = Disk(0, str(parent), is_for_prompts=True)
        self.folder = PromptFolder(parent, "ab12")
        self.files = PromptFiles(self.disk, self.folder, ORIGIN, limit_bytes)

    def __enter__(self) -> PromptFiles:
        return self.files

    def __exit__(self, *_: object) -> None:
        self.disk.close()
        self.files.close()


def settle(files: PromptFiles) -> None:
    """Until nothing is under way."""
    while files._under_way is not None:
        files._under_way.task.wait()
        files.poll()


def write(files: PromptFiles, *prompts: KeptPrompt, adapters: bytes = PLAIN) -> None:
    for prompt in prompts:
        files.write(prompt, adapters)
        settle(files)


def names(parent: Path) -> list[str]:
    (folder,) = parent.glob("pyggml-prompts-*")
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_prompt_comes_back_as_it_was_after_a_restart(tmp_path: Path) -> None:
    prompt = kept([1, 2, 3], seed=5)
    expected = [view.tobytes() for view in prompt.views()]
    with Files(tmp_path) as files:
        write(files, prompt)
    with Files(tmp_path) as files:
        found = files.find(PLAIN, [], [1, 2, 3, 4])
        assert found is not None
        read = files.read(found[0])
        settle(files)
        assert read.has_ended
        assert read.kept is not None
        assert (read.kept.tokens, [view.tobytes() for view in read.kept.views()]) == ([1, 2, 3], expected)
        assert files.take_counts() == (0, 1)


def test_what_was_half_written_is_removed_at_the_next_start(tmp_path: Path) -> None:
    with Files(tmp_path) as files:
        write(files, kept([1, 2, 3]))
    (name,) = names(tmp_path)
    (folder,) = tmp_path.glob("pyggml-prompts-*")
    (folder / "ab12-ff.partial").write_bytes(b"half")
    (folder / "cd34-ff.partial").write_bytes(b"of a server that lives: it has no lock that we could take")
    with Files(tmp_path) as files:
        assert len(files) == 1
    assert names(tmp_path) == [name, "cd34-ff.partial"]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object, **_where: object) -> int:
        raise OSError(5, "Input/output error")

    with Files(tmp_path) as files:
        monkeypatch.setattr(os, "rename", fault)
        write(files, kept([1, 2, 3]))
        assert (len(files), files.held_bytes, names(tmp_path)) == (0, 0, [])


def test_no_link_is_followed_and_nothing_is_read_that_others_could_have_put_there(tmp_path: Path) -> None:
    with Files(tmp_path) as files:
        write(files, kept([1, 2, 3]))
    (name,) = names(tmp_path)
    (folder,) = tmp_path.glob("pyggml-prompts-*")
    (folder / name).rename(tmp_path / "moved")
    (folder / name).symlink_to(tmp_path / "moved")
    with Files(tmp_path) as files:
        assert len(files) == 0
    assert names(tmp_path) == []
    assert (tmp_path / "moved").exists()
    folder.chmod(0o755)
    with pytest.raises(StateFileError, match="not a folder of this user's alone"):
        PromptFolder(tmp_path, "ab12")


def test_of_one_model_one_server_has_the_files_and_others_have_their_own(tmp_path: Path) -> None:
    with Files(tmp_path), pytest.raises(FolderInUseError, match="another server has the prompts of this model"):
        PromptFolder(tmp_path, "ab12")
    with Files(tmp_path):
        other = PromptFolder(tmp_path, "cd34")
        assert list(other.names()) == []
        other.close()


def test_prompts_with_images_and_prompts_larger_than_all_files_are_not_written(tmp_path: Path) -> None:
    with Files(tmp_path, limit_bytes=N_STATE_BYTES + 1000) as files:
        write(files, kept([1, -2, -2, 3]), kept([1, 2], n_state_bytes=2 * N_STATE_BYTES))
        assert len(files) == 0


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writes that wait for this."""
    may_end, pwrite = threading.Event(), os.pwrite

    def held(fd: int, piece: memoryview, at: int) -> int:
        assert len(piece) == 1 or may_end.wait(TIMEOUT_S)  # or the disk is tried out
        return pwrite(fd, piece, at)

    monkeypatch.setattr(os, "pwrite", held)
    yield may_end
    may_end.set()


def test_what_comes_while_the_disk_is_too_slow_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_disk: threading.Event
) -> None:
    monkeypatch.setattr(prompt_files, "WAITING_BYTES", 2 * N_STATE_BYTES)
    with Files(tmp_path) as files:
        for first in range(5):  # one is written, one waits, and there is no memory for more
            files.write(kept([first, 2, 3]), PLAIN)
        assert files.held_bytes < 2 * N_STATE_BYTES
        held_disk.set()
        settle(files)
        assert len(files) == 2


def test_what_is_still_written_or_waits_for_that_is_found_and_read_then(
    tmp_path: Path, held_disk: threading.Event
) -> None:
    with Files(tmp_path) as files:
        for first in range(3):
            files.write(kept([first, 2, 3]), PLAIN)
        found = [files.find(PLAIN, [], [first, 2, 3, 4]) for first in (2, 0)]
        reads = [files.read(best[0]) for best in found if best is not None]
        assert not any(read.has_ended for read in reads)
        held_disk.set()
        settle(files)
        assert [read.kept and read.kept.tokens for read in reads] == [[2, 2, 3], [0, 2, 3]]


def test_a_read_of_what_could_not_be_written_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_disk: threading.Event
) -> None:
    def fault(*_: object, **_where: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", fault)
    with Files(tmp_path) as files:
        files.write(kept([1, 2, 3]), PLAIN)
        found = files.find(PLAIN, [], [1, 2, 3])
        assert found is not None
        read = files.read(found[0])
        held_disk.set()
        settle(files)
        assert (read.has_ended, read.kept) == (True, None)


def test_an_end_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, held_disk: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with Files(tmp_path) as files:
        files.finish([kept([1, 2, 3]), kept([4, 5, 6])], PLAIN, 0.0)
        assert "the disk is too slow: 2 prompts are not written" in caplog.text
        held_disk.set()
    assert names(tmp_path) == []


def test_an_end_writes_the_newest_for_which_there_is_room_and_they_are_the_newest_after_it(tmp_path: Path) -> None:
    limit_bytes = 3 * (N_STATE_BYTES + 1000)
    with Files(tmp_path, limit_bytes) as files:
        write(files, kept([9, 9]))
        files.finish([kept([first, 2]) for first in range(4)], PLAIN, TIMEOUT_S)
        assert files.held_bytes <= limit_bytes
    with Files(tmp_path, limit_bytes) as files:
        assert [entry.tokens[0] for entry in files._index._entries] == [1, 2, 3]


def entry(tokens: list[int], adapters: bytes = PLAIN, n_bytes: int = 100) -> Entry:
    head = PromptHead(ORIGIN, adapters, len(tokens), 0, (n_bytes,))
    return Entry("".join(map(str, tokens)), n_bytes, head, np.array(tokens, np.int32))


def found(index: PromptIndex, have: list[int], wanted: list[int], adapters: bytes = PLAIN) -> list[int] | None:
    best = index.find(adapters, np.array(have, np.int32), np.array(wanted, np.int32))
    return None if best is None else best[0].tokens.tolist()


def test_what_is_found_has_more_in_common_than_the_slot_and_keeps_a_quarter_of_itself() -> None:
    index = PromptIndex(1000)
    for tokens in ([1, 5, 6, 7], [1, 2, 3, 4], [7] * 10):
        index.add(entry(tokens))
    assert found(index, [], [1, 2, 3, 4, 5]) == [1, 2, 3, 4]
    assert found(index, [1, 2, 3, 4], [1, 2, 3, 4, 5]) is None
    assert found(index, [1, 9, 9, 9, 9], [1, 5, 3]) == [1, 5, 6, 7]
    assert found(index, [], [7, 7, 1]) is None
    assert found(index, [], [1, 2, 3], SCALED) is None


def test_room_is_made_of_those_that_the_new_one_begins_with_and_then_of_the_oldest() -> None:
    new = entry([1, 2, 3], n_bytes=150)
    assert new.head is not None
    index = PromptIndex(new.head.n_bytes + 150)
    oldest, other, beginning = entry([8, 8]), entry([9, 9]), entry([1, 2])
    for one in (oldest, other, beginning):
        index.add(one)
    gone = index.make_room(new.head, new.tokens)
    assert [one.name for one in gone] == ["12", "88"]
    assert (index.held_bytes, index.knows(new.head, new.tokens)) == (100, False)
