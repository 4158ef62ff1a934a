"""A state in a file: private, bounded, judged by a checksum, and gone with its process."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.background import piecewise_file
from pyggml_server.engine.background.state_file import Bytes, StateFile, StateFileError


def some_bytes(n_bytes: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, n_bytes, dtype=np.uint8)


def blank(file: StateFile) -> list[Bytes]:
    return [np.zeros(n_bytes, dtype=np.uint8) for n_bytes in file.sizes_bytes]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise_file, "PIECE_BYTES", 1000)
    monkeypatch.setattr(piecewise_file, "SYNCED_BYTES", 3000)


@pytest.mark.parametrize("sizes", [(1,), (1000,), (12_345,), (5000, 1, 777)])
def test_what_was_written_is_read(sizes: tuple[int, ...], tmp_path: Path) -> None:
    parts = [some_bytes(n_bytes, n_bytes) for n_bytes in sizes]
    file = StateFile(tmp_path, sizes)
    file.write(parts)
    again = blank(file)
    file.read(again)
    file.close()
    assert [part.tobytes() for part in again] == [part.tobytes() for part in parts]


def test_a_file_has_no_name_and_is_nobody_elses(tmp_path: Path) -> None:
    file = StateFile(tmp_path, (100,))
    file.write([some_bytes(100)])
    assert list(tmp_path.iterdir()) == []
    assert stat.S_IMODE(os.fstat(file._fd).st_mode) == 0o600
    file.close()
    file.close()


def test_what_was_written_and_read_leaves_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _fd: said.append("synced"))
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, _at, _n, advice: said.append(str(advice)))
    file = StateFile(tmp_path, (10_000,))
    file.write([some_bytes(10_000)])
    assert said == ["synced", str(os.POSIX_FADV_DONTNEED)] * 4  # after each 3,000 bytes, and at the end
    file.read(blank(file))
    assert len(said) == 10
    file.close()


def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    file = StateFile(tmp_path, (100,))
    with pytest.raises(StateFileError, match="a state of 100 bytes cannot be written: No space left on device"):
        file.write([some_bytes(100)])
    file.close()


@pytest.mark.parametrize("what", ["write", "read"])
def test_a_fault_of_the_device_is_told(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = StateFile(tmp_path, (100,))
    if what == "read":
        file.write([some_bytes(100)])
    monkeypatch.setattr(os, "pwrite" if what == "write" else "preadv", fault)
    with pytest.raises(StateFileError, match="Input/output error"):
        getattr(file, what)(blank(file))
    file.close()


def test_a_device_that_takes_a_little_at_a_time_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, piece, at: pwrite(fd, piece[:7], at))
    monkeypatch.setattr(os, "preadv", lambda fd, pieces, at: preadv(fd, [pieces[0][:11]], at))
    part = some_bytes(2500)
    file = StateFile(tmp_path, (2500,))
    file.write([part])
    (again,) = parts = blank(file)
    file.read(parts)
    file.close()
    assert again.tobytes() == part.tobytes()


@pytest.mark.parametrize("at", [0, 1500, 2499])
def test_one_changed_byte_is_found(at: int, tmp_path: Path) -> None:
    part = some_bytes(2500)
    file = StateFile(tmp_path, (2500,))
    file.write([part])
    os.pwrite(file._fd, bytes([part[at] ^ 1]), at)
    with pytest.raises(StateFileError, match="has changed on the disk"):
        file.read(blank(file))
    file.close()


def test_a_file_that_became_shorter_is_found(tmp_path: Path) -> None:
    file = StateFile(tmp_path, (2500,))
    file.write([some_bytes(2500)])
    os.ftruncate(file._fd, 2000)
    with pytest.raises(StateFileError, match="has become shorter on the disk: 2000 bytes"):
        file.read(blank(file))
    file.close()


def test_what_nobody_wants_any_more_ends_at_the_next_piece(tmp_path: Path) -> None:
    file = StateFile(tmp_path, (2500,))
    file.abandon()
    with pytest.raises(StateFileError, match="nobody wants it"):
        file.write([some_bytes(2500)])
    file.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateFileError, match=r"no file can be made in .*nowhere: No such file"):
        StateFile(tmp_path / "nowhere", (1,)).write([some_bytes(1)])
