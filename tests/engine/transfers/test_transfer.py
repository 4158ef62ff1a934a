"""The synchronous transfer on a real context: a park and its restore change no row, whoever decodes in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyggml_server.engine.transfers.transfer import SyncTransfer, TransferRefusedError
from pyggml_server.native.command_line import CommandLine
from pyggml_server.native.runtime import BatchArrays, Runtime

from pyggml import rows_by_position


@pytest.fixture(scope="module")
def runtime(narrow_path: Path) -> Iterator[Runtime]:
    argv = ["-m", str(narrow_path), "-c", "512", "-np", "3", "--kv-unified", "-fa", "on", "-t", "1"]
    loaded = Runtime.load(CommandLine.parse(argv))
    yield loaded
    loaded.close()


@pytest.fixture(autouse=True)
def empty_pool(runtime: Runtime) -> None:
    runtime.context.clear()


def decode(runtime: Runtime, seq_id: int, first: int, n_tokens: int) -> int:
    token = np.arange(100 + first, 100 + first + n_tokens, dtype=np.int32)
    pos = np.arange(first, first + n_tokens, dtype=np.int32)
    batch = BatchArrays(token, pos, np.full(n_tokens, seq_id, dtype=np.int32), np.zeros(n_tokens, dtype=np.int8))
    status, _ = runtime.step(batch, [])
    runtime.context.note_decoded()
    return status


def interleave(runtime: Runtime, n_tokens: int) -> None:
    """Three sequences that take their cells in turn."""
    for first in range(0, n_tokens, 4):
        for seq_id in range(3):
            assert decode(runtime, seq_id, first, 4) == 0


def test_rows_by_position_are_equal_before_a_park_and_after_its_restore(runtime: Runtime) -> None:
    interleave(runtime, 32)
    before = rows_by_position(runtime.context.save_state(1))
    transfer = SyncTransfer(runtime.context)
    transfer.save(1)
    runtime.context.seq_remove(1)
    for first in range(32, 72, 8):  # the others take the cells that it gave back
        decode(runtime, 0, first, 8)
        decode(runtime, 2, first, 8)
    transfer.restore(1)
    assert rows_by_position(runtime.context.save_state(1)) == before


def test_the_buffer_is_held_only_while_a_state_is_parked(runtime: Runtime) -> None:
    interleave(runtime, 16)
    transfer = SyncTransfer(runtime.context)
    assert transfer.buffer_bytes == 0
    transfer.save(0)
    assert transfer.buffer_bytes == runtime.context.state_size(0)
    runtime.context.seq_remove(0)
    transfer.restore(0)
    assert transfer.buffer_bytes == 0


def test_a_restore_into_a_full_pool_is_refused_and_keeps_the_state(runtime: Runtime) -> None:
    interleave(runtime, 16)
    transfer = SyncTransfer(runtime.context)
    transfer.save(0)
    n_bytes = transfer.state_bytes
    runtime.context.seq_remove(0)
    n_free = runtime.n_ctx - runtime.context.n_cells_used()
    assert decode(runtime, 1, 16, n_free) == 0
    with pytest.raises(TransferRefusedError, match="could not be restored"):
        transfer.restore(0)
    assert transfer.state_bytes == n_bytes
    runtime.context.seq_remove(1)
    transfer.restore(0)


def test_a_sequence_that_is_parked_cannot_be_parked_again(runtime: Runtime) -> None:
    interleave(runtime, 8)
    transfer = SyncTransfer(runtime.context)
    transfer.save(0)
    with pytest.raises(TransferRefusedError, match="already parked"):
        transfer.save(0)
    transfer.drop()
    with pytest.raises(TransferRefusedError, match="no parked state"):
        transfer.restore(0)
