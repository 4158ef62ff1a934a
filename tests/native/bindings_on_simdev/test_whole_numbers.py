"""Sizes and sequences that are no whole numbers, or too large, are refused before anything has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyggml import Context, InvalidArgumentError, OutOfMemoryError, PinnedPool, Transfer, rows_by_position

PIECE = 1 << 14
HALF: Any = 1.5
Misuse = Callable[[Transfer], object]


@pytest.fixture
def parked(staged: Context) -> Iterator[Transfer]:
    """Sequence 0's state; the sequence is empty."""
    with Transfer(staged, is_staged=True) as made:
        made.save(0)
        made.wait()
        staged.seq_remove(0)
        yield made


@pytest.mark.parametrize("is_prefetched", [False, True])
@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda transfer: transfer.blank(HALF), TypeError),
        (lambda transfer: transfer.prefetch(HALF), TypeError),
        (lambda transfer: transfer.load(HALF), InvalidArgumentError),
        (lambda transfer: transfer.load(b""), InvalidArgumentError),
        (lambda transfer: transfer.blank(0), InvalidArgumentError),
    ],
)
def test_a_refused_number_leaves_the_state(
    staged: Context, parked: Transfer, misuse: Misuse, error: type[Exception], is_prefetched: bool
) -> None:
    before = rows_by_position(parked.state)
    if is_prefetched:
        assert parked.prefetch(1000)
    left_bytes = parked.prefetch_left_bytes
    with pytest.raises(error):
        misuse(parked)
    assert parked.prefetch_left_bytes == left_bytes
    parked.restore(0)
    parked.wait()
    assert rows_by_position(staged.save_state(0)) == before


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda transfer: transfer.save(HALF), TypeError),
        (lambda transfer: transfer.save(0, HALF), TypeError),
        (lambda transfer: transfer.save(0, -1), InvalidArgumentError),
        (lambda transfer: transfer.save(0, 2**64), OutOfMemoryError),
        (lambda transfer: transfer.reserve(HALF * PIECE**2), TypeError),
        (lambda transfer: transfer.reserve(2**64), OutOfMemoryError),
        (lambda transfer: transfer.blank(2**64), OutOfMemoryError),
    ],
)
def test_a_refused_size_leaves_the_range_and_the_state_in_it(
    context: Context, misuse: Misuse, error: type[Exception]
) -> None:
    with PinnedPool(context, 8 * PIECE, PIECE) as pool, Transfer(context) as transfer:
        pool.fill(8 * PIECE)
        part = pool.take(8 * PIECE)
        assert part is not None
        transfer.use(part)
        transfer.save(0)
        transfer.wait()
        before = bytes(transfer.state)
        with pytest.raises(error):
            misuse(transfer)
        assert (bytes(transfer.state), pool.held_bytes) == (before, 8 * PIECE)


@pytest.mark.parametrize("n_bytes", [2**64, 2**70])
def test_a_part_larger_than_any_state_is_all_of_it(parked: Transfer, n_bytes: int) -> None:
    assert parked.prefetch(n_bytes)
    assert parked.prefetch_left_bytes == 0


def test_a_range_does_not_shrink_to_a_half(context: Context) -> None:
    with PinnedPool(context, PIECE, PIECE) as pool:
        pool.fill(PIECE)
        part = pool.take(100)
        assert part is not None
        with pytest.raises(TypeError):
            part.shrink(HALF)
        assert (part.n_bytes, pool.held_bytes) == (100, 100)
        with pytest.raises(TypeError):
            pool.take(HALF)
        assert pool.held_bytes == 100
        part.give_back()
