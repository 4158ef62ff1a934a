"""A range of a pool has one user at a time, a transfer, and only that one shrinks it and gives it back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pyggml import ClosedError, Context, OutOfMemoryError, PinnedPool, PinnedRange, StateError, Transfer

PIECE = 1 << 13
N_RANGE_BYTES = 9 * PIECE  # more than the state of 20 cells


@pytest.fixture
def pool(context: Context) -> Iterator[PinnedPool]:
    """Twenty pieces, all locked."""
    with PinnedPool(context, 20 * PIECE, PIECE) as made:
        made.fill(20 * PIECE)
        yield made


@pytest.fixture
def part(pool: PinnedPool) -> PinnedRange:
    taken = pool.take(N_RANGE_BYTES)
    assert taken is not None
    return taken


def test_what_a_transfer_uses_is_nobody_elses(
    context: Context, pool: PinnedPool, part: PinnedRange, transfer: Transfer
) -> None:
    transfer.use(part)
    transfer.save(0)
    transfer.wait()
    before = bytes(transfer.state)
    with Transfer(context) as other:
        misuses: tuple[Callable[[], None], ...] = (
            lambda: transfer.use(part),
            lambda: other.use(part),
            lambda: part.shrink(100),
            part.give_back,
        )
        for misuse in misuses:
            with pytest.raises(BufferError, match="a transfer uses this range, so it cannot be"):
                misuse()
        assert other.buffer_bytes == 0
    with pytest.raises(BufferError, match="1 ranges of the pool are held"):
        pool.close()
    assert (pool.held_bytes, part.n_bytes, transfer.buffer_bytes) == (N_RANGE_BYTES,) * 3
    behind = pool.take(N_RANGE_BYTES)
    assert behind is not None
    behind.view[:] = 7
    assert bytes(transfer.state) == before
    behind.give_back()


def test_its_user_shrinks_it_and_gives_it_back(pool: PinnedPool, part: PinnedRange, transfer: Transfer) -> None:
    transfer.use(part)
    transfer.save(0)
    transfer.wait()
    transfer.shrink_buffer()
    assert part.n_bytes == pool.held_bytes == transfer.n_state_bytes < N_RANGE_BYTES
    transfer.release_buffer()
    assert pool.held_bytes == 0
    part.give_back()  # was given back: does nothing
    with pytest.raises(ClosedError, match="take another one"):
        transfer.use(part)


def test_a_range_that_is_left_to_views_is_given_back_with_the_last_of_them_on_any_thread(
    context: Context, pool: PinnedPool, part: PinnedRange, transfer: Transfer
) -> None:
    expected = context.save_state(0).tobytes()
    transfer.use(part)
    transfer.save(0)
    transfer.wait()
    views = [transfer.state, transfer.state[:100]]
    transfer.leave_buffer()
    assert (transfer.buffer_bytes, transfer.n_state_bytes, pool.held_bytes) == (0, 0, N_RANGE_BYTES)
    transfer.save(1)  # into a buffer of its own
    transfer.wait()
    views.pop()
    assert (views[0].tobytes(), pool.held_bytes) == (expected, N_RANGE_BYTES)
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert pool.held_bytes == 0


def test_a_range_that_is_left_to_nobody_is_given_back_at_once(
    pool: PinnedPool, part: PinnedRange, transfer: Transfer
) -> None:
    transfer.use(part)
    transfer.leave_buffer()
    assert (transfer.buffer_bytes, pool.held_bytes) == (0, 0)


def test_a_range_that_could_not_be_used_is_still_its_takers(
    pool: PinnedPool, part: PinnedRange, transfer: Transfer
) -> None:
    transfer.save(0)
    transfer.wait()
    view = transfer.state
    with pytest.raises(BufferError, match="drop the view"):
        transfer.use(part)
    assert len(view) > 0
    part.shrink(100)
    part.give_back()
    assert pool.held_bytes == 0


def test_a_buffer_that_cannot_grow_has_given_its_range_back(
    pool: PinnedPool, part: PinnedRange, transfer: Transfer
) -> None:
    transfer.use(part)
    transfer.save(0)
    transfer.wait()
    with pytest.raises(OutOfMemoryError):
        transfer.reserve(2**62)
    assert (transfer.buffer_bytes, transfer.n_state_bytes, pool.held_bytes) == (0, 0, 0)
    with pytest.raises(StateError, match="holds no state"):
        _ = transfer.state


def test_a_range_that_is_given_back_twice_at_once_is_given_back_once() -> None:
    kept: list[int] = []

    def keep(n_bytes: int) -> None:
        kept.append(n_bytes)
        if len(kept) < 3:
            taken.give_back()  # as a finalizer may that runs just now

    taken = PinnedRange(np.zeros(100, np.uint8), PIECE, keep)
    taken.give_back()
    assert kept == [0]
