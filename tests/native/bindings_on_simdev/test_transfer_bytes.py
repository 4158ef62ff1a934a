"""What `pyggml.Transfer` copies, on a device whose copies come as late as they may; and planted faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pyggml import (
    Context,
    InvalidArgumentError,
    PinnedPool,
    Transfer,
    TransferInFlightError,
    rows_by_position,
)
from pyggml.transfers_in_flight import TransfersInFlight
from tests.native.bindings_on_simdev.conftest import N_SEQUENCES, go_on, hold
from tests.native.simdev_library import SimdevLibrary


def test_a_saved_state_is_that_of_the_synchronous_call(context: Context, transfer: Transfer) -> None:
    n_bytes = transfer.save(1)
    transfer.wait()
    assert n_bytes == transfer.n_state_bytes == context.state_size(1)
    assert transfer.state.tobytes() == context.save_state(1).tobytes()


def test_rows_are_equal_before_a_save_and_after_a_restore_elsewhere(context: Context, transfer: Transfer) -> None:
    before = [rows_by_position(context.save_state(seq_id)) for seq_id in range(N_SEQUENCES)]
    transfer.save(1)
    transfer.wait()
    context.seq_remove(1)
    go_on(context, 0, 20, 8)  # takes cells that were sequence 1's
    transfer.restore(1)
    transfer.wait()
    assert rows_by_position(context.save_state(1)) == before[1]
    assert rows_by_position(context.save_state(2)) == before[2]


def test_a_state_that_another_thread_fills_in_can_be_restored(context: Context, transfer: Transfer) -> None:
    state = context.save_state(2)
    before = rows_by_position(state)
    blank = transfer.blank(len(state))
    filler = threading.Thread(target=np.copyto, args=(blank, state))
    filler.start()
    filler.join()
    del filler
    with pytest.raises(BufferError, match="a view of the transfer's state is alive"):
        transfer.save(0)
    del blank
    context.seq_remove(2)
    transfer.restore(2)
    transfer.wait()
    assert rows_by_position(context.save_state(2)) == before
    with pytest.raises(InvalidArgumentError, match="0 bytes"):
        transfer.blank(0)


def test_a_state_of_the_synchronous_call_can_be_loaded_and_restored(context: Context, transfer: Transfer) -> None:
    before = rows_by_position(context.save_state(2))
    transfer.load(context.save_state(2))
    context.seq_remove(2)
    transfer.restore(0)
    transfer.wait()
    assert rows_by_position(context.save_state(0)) == before


def test_a_state_can_be_restored_more_than_once(context: Context, transfer: Transfer) -> None:
    before = rows_by_position(context.save_state(0))
    transfer.save(0)
    for seq_id in (1, 2):
        transfer.wait()
        transfer.restore(seq_id)
    transfer.wait()
    assert [rows_by_position(context.save_state(seq_id)) == before for seq_id in (1, 2)] == [True, True]


def test_a_buffer_that_is_large_enough_is_used_again(context: Context, transfer: Transfer) -> None:
    transfer.reserve(2 * context.state_size(0))
    n_bytes = transfer.buffer_bytes
    transfer.save(0)
    transfer.wait()
    assert (transfer.buffer_bytes, transfer.is_pinned, transfer.can_pin) == (n_bytes, True, True)
    transfer.release_buffer()
    assert (transfer.buffer_bytes, transfer.n_state_bytes, transfer.is_pinned) == (0, 0, False)


PIECE_BYTES = 1 << 14


@pytest.fixture
def pool(context: Context) -> Iterator[PinnedPool]:
    with PinnedPool(context, 64 * PIECE_BYTES, PIECE_BYTES) as made:
        made.fill(64 * PIECE_BYTES)
        yield made


def test_a_transfer_uses_a_range_of_a_pool_and_gives_it_back(context: Context, pool: PinnedPool) -> None:
    before = rows_by_position(context.save_state(1))
    n_bytes = context.state_size(1)
    gap = pool.take(100)  # so that the range begins inside a piece
    part = pool.take(n_bytes)
    assert gap is not None
    assert part is not None
    with Transfer(context) as transfer:
        transfer.use(part)
        assert (transfer.buffer_bytes, transfer.is_pinned, pool.held_bytes > n_bytes) == (n_bytes, True, True)
        transfer.save(1)
        transfer.wait()
        context.seq_remove(1)
        transfer.restore(2)
        transfer.wait()
        assert rows_by_position(context.save_state(2)) == before
        transfer.release_buffer()
        gap.give_back()
        assert (transfer.buffer_bytes, pool.held_bytes) == (0, 0)


def test_a_range_is_given_back_when_the_buffer_grows_and_when_the_transfer_is_closed(
    context: Context, pool: PinnedPool
) -> None:
    transfer = Transfer(context)
    for _ in range(2):
        part = pool.take(1000)
        assert part is not None
        transfer.use(part)
    held_bytes = pool.held_bytes
    transfer.reserve(2000)
    assert (pool.held_bytes, transfer.is_pinned) == (0, True)
    part = pool.take(1000)
    assert part is not None
    transfer.use(part)
    assert pool.held_bytes == held_bytes
    transfer.close()
    assert pool.held_bytes == 0


def test_a_range_is_given_back_only_after_the_copy_that_uses_it(
    context: Context, pool: PinnedPool, simdev: SimdevLibrary
) -> None:
    with Transfer(context) as transfer:
        part = pool.take(context.state_size(0))
        assert part is not None
        transfer.use(part)
        hold(simdev, transfer)
        with pytest.raises(TransferInFlightError):
            transfer.use(part)
        assert pool.held_bytes > 0
        simdev.release()
        transfer.release_buffer()
        assert (transfer.done(), pool.held_bytes) == (True, 0)


def test_an_early_release_of_cells_that_the_bindings_let_through_changes_no_saved_row(
    context: Context, transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp itself orders what takes the cells behind the copy."""
    before = rows_by_position(context.save_state(0))
    monkeypatch.setattr(TransfersInFlight, "check_none", lambda *_: None)
    transfer.save(0)
    context.seq_remove(0)
    go_on(context, 1, 20, 40)
    context.synchronize()
    transfer.wait()
    assert rows_by_position(transfer.state) == before


def test_a_planted_early_reuse_of_a_buffer_changes_the_restored_rows(context: Context, transfer: Transfer) -> None:
    before = rows_by_position(context.save_state(0))
    transfer.save(0)
    transfer.wait()
    context.seq_remove(0)
    transfer.restore(0)
    transfer._writable_state()[-500:] = 0
    transfer.wait()
    assert rows_by_position(context.save_state(0)) != before
