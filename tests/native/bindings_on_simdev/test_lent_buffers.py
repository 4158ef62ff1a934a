"""Transfers whose buffer is a part of a pool: the same bytes over many pieces, given back on any thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from pyggml import ClosedError, Context, InvalidArgumentError, PinnedPool, PinnedRange, Transfer
from tests.native.simdev_library import SimdevLibrary

PIECE = 1 << 13


@pytest.fixture
def pool(context: Context) -> Iterator[PinnedPool]:
    """Sixteen pieces, all locked."""
    with PinnedPool(context, 16 * PIECE, PIECE) as made:
        assert made.fill(16 * PIECE) == 16 * PIECE
        yield made


def take(pool: PinnedPool, n_bytes: int) -> PinnedRange:
    part = pool.take(n_bytes)
    assert part is not None
    return part


def test_a_state_goes_through_many_pieces_and_back(context: Context, pool: PinnedPool, simdev: SimdevLibrary) -> None:
    before = bytes(context.save_state(1))
    assert len(before) > 2 * PIECE  # simdev ends the process at a copy that crosses a border
    other = take(pool, 100)
    with Transfer(context) as transfer:
        simdev.clear_trace()
        transfer.use(take(pool, len(before)))
        assert transfer.is_pinned
        assert transfer.buffer_bytes == len(before)
        transfer.save(1)
        transfer.wait()
        assert bytes(transfer.state) == before
        context.seq_remove(1)
        transfer.restore(1)
        transfer.wait()
        assert simdev.trace_kinds()["pin"] == simdev.trace_kinds()["unpin"] == 0
    assert bytes(context.save_state(1)) == before
    assert pool.held_bytes == 100
    other.give_back()


def test_a_range_shrinks_to_its_state_while_the_copy_is_in_flight(
    context: Context, pool: PinnedPool, simdev: SimdevLibrary
) -> None:
    before = bytes(context.save_state(1))
    part = take(pool, len(before) + 5000)
    with Transfer(context) as transfer:
        transfer.use(part)
        simdev.set("hold", 1)
        transfer.save(1, may_grow=False)
        simdev.set("hold", 0)
        transfer.shrink_buffer()
        assert transfer.buffer_bytes == part.n_bytes == pool.held_bytes == len(before)
        behind = take(pool, 4000)  # in what was given back
        assert behind.address == part.address + -(-len(before) // 64) * 64
        simdev.release()
        transfer.wait()
        behind.view[:] = 7
        assert bytes(transfer.state) == before
        transfer.reserve(len(before) + 1)  # elsewhere
        assert pool.held_bytes == 4000
        transfer.save(1)
        transfer.wait()
        assert behind.view.min() == behind.view.max() == 7
    behind.give_back()


@pytest.mark.parametrize("n_bytes", [0, 101])
def test_a_range_does_not_shrink_to_nothing_and_does_not_grow(n_bytes: int, pool: PinnedPool) -> None:
    part = take(pool, 100)
    with pytest.raises(InvalidArgumentError, match=f"a range of 100 bytes cannot shrink to {n_bytes}"):
        part.shrink(n_bytes)
    assert (part.n_bytes, pool.held_bytes) == (100, 100)
    part.give_back()
    with pytest.raises(ClosedError):
        part.shrink(1)


def test_a_view_of_the_state_keeps_the_part(context: Context, pool: PinnedPool) -> None:
    transfer = Transfer(context)
    transfer.use(take(pool, context.state_size(1)))
    transfer.save(1)
    transfer.wait()
    view = transfer.state
    copied = bytes(view)
    transfer.close()
    assert pool.held_bytes > 0
    assert bytes(view) == copied
    del view
    gc.collect()
    assert pool.held_bytes == 0


def test_a_transfer_that_ends_on_another_thread_gives_its_part_back(context: Context, pool: PinnedPool) -> None:
    transfer = Transfer(context)
    transfer.use(take(pool, 64))
    context.close()
    thread = threading.Thread(target=transfer.close)
    thread.start()
    thread.join()
    assert pool.held_bytes == 0
