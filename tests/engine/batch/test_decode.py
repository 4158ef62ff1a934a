"""A step of the runtime: what may be done between the decode and its samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.batch.decode import STATUS_DONE, STATUS_NO_ROOM
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.runtime import BatchArrays, Runtime


@pytest.fixture
def runtime(narrow_path: Path) -> Iterator[Runtime]:
    loaded = Runtime.load(CommandLine.parse(["-m", str(narrow_path), "-c", "256", "-np", "1", "-t", "1"]))
    yield loaded
    loaded.close()


def batch_of(n_tokens: int, first: int = 0) -> BatchArrays:
    """Tokens for sequence 0, from this position on."""
    zeros = np.zeros(n_tokens, dtype=np.int32)
    return BatchArrays(zeros + 100, first + np.arange(n_tokens, dtype=np.int32), zeros, zeros.astype(np.int8))


def test_what_is_overlapped_is_done_once_the_batch_has_its_cells(runtime: Runtime) -> None:
    n_cells: list[int] = []
    assert runtime.step(batch_of(3), [], lambda: n_cells.append(runtime.context.n_cells_used())) == (STATUS_DONE, [])
    assert n_cells == [3]


def test_nothing_is_overlapped_with_a_batch_that_finds_no_room(runtime: Runtime) -> None:
    calls: list[str] = []
    assert runtime.step(batch_of(200), []) == (STATUS_DONE, [])
    assert runtime.step(batch_of(100, first=200), [], lambda: calls.append("overlapped")) == (STATUS_NO_ROOM, [])
    assert calls == []


def test_what_fails_while_overlapped_fails_the_step(runtime: Runtime) -> None:
    with pytest.raises(ZeroDivisionError):
        runtime.step(batch_of(1), [], lambda: [][1 // 0])
