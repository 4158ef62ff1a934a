"""The pool of pinned memory without a device that locks any: its books, its thread, and what it refuses."""

from __future__ import annotations

import logging
import random
import threading
from typing import Any

import numpy as np
import pytest

from pyggml import ClosedError, Context, InvalidArgumentError, PinnedPool, WrongThreadError
from pyggml.ffi import lib
from pyggml.first_fit import ALIGNMENT_BYTES, FirstFit
from pyggml.populator import Populator

PIECE = 1 << 16


def test_the_first_gap_that_is_large_enough_is_taken() -> None:
    ranges = FirstFit()
    first, second, third = (ranges.take(n_bytes, 1024) for n_bytes in (128, 256, 64))
    assert (first, second, third) == (0, 128, 384)
    assert second is not None
    ranges.give_back(second)
    assert ranges.take(300, 1024) == 448
    assert ranges.take(100, 1024) == 128
    assert ranges.held_bytes == 128 + 64 + 300 + 100
    assert ranges.last_end == 748


def test_a_range_that_would_pass_the_end_is_not_taken() -> None:
    ranges = FirstFit()
    assert ranges.take(1025, 1024) is None
    assert ranges.take(1000, 1024) == 0
    assert ranges.take(1, 1024) is None  # the next aligned begin is the end
    assert (len(ranges), ranges.held_bytes) == (1, 1000)


def test_a_range_that_shrinks_leaves_the_rest_to_others() -> None:
    ranges = FirstFit()
    first = ranges.take(1000, 1024)
    assert first == 0
    ranges.shrink(first, 200)
    assert (ranges.held_bytes, ranges.last_end) == (200, 200)
    assert ranges.take(700, 1024) == 256
    ranges.give_back(first)
    assert ranges.held_bytes == 700
    with pytest.raises(KeyError):
        ranges.shrink(first, 100)


def test_giving_back_what_is_not_taken_is_refused() -> None:
    with pytest.raises(KeyError):
        FirstFit().give_back(0)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_aligned_and_never_overlap(seed: int) -> None:
    chance, ranges, end = random.Random(seed), FirstFit(), 10_000
    held: dict[int, int] = {}
    for _ in range(300):
        if held and chance.random() < 0.45:
            begin = chance.choice(sorted(held))
            ranges.give_back(begin)
            del held[begin]
            continue
        n_bytes = chance.randrange(1, 2000)
        end_for = ranges.end_for(n_bytes)
        assert ranges.take(n_bytes, end_for - 1) is None
        taken = ranges.take(n_bytes, end)
        assert (taken is not None) == (end_for <= end)
        if taken is not None:
            assert taken % ALIGNMENT_BYTES == 0
            assert taken + n_bytes <= end
            assert all(taken >= begin + n or taken + n_bytes <= begin for begin, n in held.items())
            held[taken] = n_bytes
        assert ranges.held_bytes == sum(held.values())
        assert ranges.last_end == max((begin + n for begin, n in held.items()), default=0)


def test_the_thread_maps_what_is_wanted_and_no_more() -> None:
    pages = Populator(4, PIECE)
    pages.want(2)
    assert pages.wait_mapped(2)
    assert not pages.wait_mapped(3)
    assert pages.n_mapped == 2
    pages.memory[:] = 7
    pages.want(3)
    assert pages.wait_mapped(3)
    assert np.all(pages.memory == 7)  # mapping keeps what is there
    pages.close()


def test_memory_that_was_given_back_comes_again_as_zeros() -> None:
    pages = Populator(2, PIECE)
    pages.want(2)
    assert pages.wait_mapped(2)
    pages.memory[:] = 7
    pages.shrink(1)
    assert pages.n_mapped == 1
    assert np.all(pages.memory[:PIECE] == 7)
    assert not pages.memory[PIECE:].any()
    pages.close()


def test_a_slice_keeps_the_address_space_after_the_close() -> None:
    pages = Populator(1, PIECE)
    part = pages.memory[:10]
    pages.close()
    del pages
    part[:] = 3
    assert part.sum() == 30


class NoMemory:
    """The native library on a system that has no more memory."""

    def __getattr__(self, name: str) -> object:
        return (lambda *_: False) if name == "pyggml_host_populate" else getattr(lib, name)


def test_a_system_without_memory_ends_the_growth(
    context: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pyggml.populator.lib", NoMemory())
    with PinnedPool(context, 4 * PIECE, PIECE) as pool, caplog.at_level(logging.WARNING):
        assert pool.fill(2 * PIECE) == 0
        assert not pool.can_grow
        assert f"stays at 0 of {2 * PIECE} bytes: the system has no memory" in caplog.text


def test_without_a_device_that_locks_memory_the_pool_stays_empty(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    with PinnedPool(context, 4 * PIECE, PIECE) as pool, caplog.at_level(logging.WARNING):
        assert pool.can_grow
        assert pool.fill(PIECE) == 0
        assert (pool.can_grow, pool.is_growing, pool.pinned_bytes) == (False, False, 0)
        assert pool.take(1) is None
        pool.grow(2 * PIECE)
        assert not pool.advance()
        assert caplog.text.count("the device refused") == 1


def test_sizes_that_make_no_sense_are_refused(context: Context) -> None:
    with pytest.raises(InvalidArgumentError, match="piece_bytes=5000 is not a power of two"):
        PinnedPool(context, 1 << 20, 5000)
    with pytest.raises(InvalidArgumentError, match="limit_bytes=100 is less than one piece"):
        PinnedPool(context, 100)
    with PinnedPool(context, PIECE, PIECE) as pool, pytest.raises(InvalidArgumentError, match="n_bytes=0"):
        pool.take(0)


def test_sizes_that_are_no_whole_numbers_are_refused(context: Context) -> None:
    half: Any = 1.5 * PIECE
    with pytest.raises(TypeError):
        PinnedPool(context, half, PIECE)
    with PinnedPool(context, 2 * PIECE, PIECE) as pool:
        for call in (pool.grow, pool.fill, pool.take, pool.end_for, pool.trim):
            with pytest.raises(TypeError):
                call(half)
        assert (pool.is_growing, pool.held_bytes) == (False, 0)


def test_the_limit_counts_in_whole_pieces(context: Context) -> None:
    with PinnedPool(context, 3 * PIECE - 1, PIECE) as pool:
        assert pool.limit_bytes == 2 * PIECE


def test_a_closed_pool_and_another_thread_are_refused(context: Context) -> None:
    pool = PinnedPool(context, PIECE, PIECE)
    refused: list[Exception] = []

    def elsewhere() -> None:
        try:
            pool.advance()
        except WrongThreadError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == 1
    pool.close()
    pool.close()
    with pytest.raises(ClosedError, match="create a new one"):
        pool.grow(1)


def test_a_pool_that_was_not_closed_says_so(context: Context) -> None:
    pool = PinnedPool(context, PIECE, PIECE)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del pool
