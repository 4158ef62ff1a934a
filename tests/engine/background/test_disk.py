"""The disk behind host memory: what it may hold, and when it is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.background.disk import PAUSE_S, Disk
from pyggml_server.engine.background.state_file import StateFileError
from pyggml_server.errors import LoadError


def test_without_a_budget_there_is_no_disk() -> None:
    disk = Disk()
    assert disk.limit_bytes == disk.usable_bytes(0.0) == 0
    disk.close()


def test_a_folder_that_takes_no_file_ends_the_start_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        LoadError, match=r"--preempt-disk: no file can be made in .*; name another folder with --disk-path"
    ):
        Disk(100, str(tmp_path / "nowhere"))


def test_after_a_fault_it_is_left_alone_for_a_while_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(100, str(tmp_path))
    assert disk.usable_bytes(10.0) == 100
    disk.pause(10.0, StateFileError("no room"))
    assert disk.usable_bytes(10.0 + PAUSE_S / 2) == 0
    assert disk.usable_bytes(10.0 + PAUSE_S) == 100
    assert f"no room; no parked state goes to {tmp_path} for 60 s (--preempt-disk)" in caplog.text
    disk.close()


def test_its_thread_reads_and_writes_lets_go_of_the_parts_and_tells_what_went_wrong(tmp_path: Path) -> None:
    disk = Disk(100, str(tmp_path))
    file = disk.new_file((3,))
    parts = [np.array([1, 2, 3], dtype=np.uint8)]
    assert disk.run(file.write, parts).wait() is None
    assert parts == []
    file.abandon()
    error = disk.run(file.read, [np.zeros(3, dtype=np.uint8)]).wait()
    assert isinstance(error, StateFileError)
    broken = disk.run(lambda _parts: 1 // 0, []).wait()  # type: ignore[arg-type]
    assert str(broken) == "ZeroDivisionError: integer division or modulo by zero"
    file.close()
    disk.close()
