"""Pinned memory grows ahead of its need and a piece a pass; a park waits for it only where nobody could go on."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any, cast

import pytest
from pyggml_server.engine.transfers.park_memory import (
    LARGEST_PIECE_BYTES,
    NoGapError,
    NotPinnedYetError,
    PageableBufferError,
    ParkMemory,
    piece_bytes,
)
from pyggml_server.native.runtime import PinnedRange

from tests.engine.pinned_pool import FakePinnedPool

PIECE = 100
LIMIT = 1000


@dataclass
class Pageable:
    """A slot that parks synchronously."""

    buffer_bytes: int = 0


@pytest.fixture
def pool() -> FakePinnedPool:
    return FakePinnedPool(LIMIT, PIECE)


@pytest.fixture
def memory(pool: FakePinnedPool) -> ParkMemory:
    return ParkMemory(cast(Any, pool))


def test_each_pass_locks_one_piece_until_all_who_run_would_find_room(memory: ParkMemory, pool: FakePinnedPool) -> None:
    locked = []
    for _ in range(6):
        memory.keep_ahead(150, 350)
        locked.append(memory.pinned_bytes)
    assert locked == [100, 200, 300, 400, 400, 400]
    memory.take(250)
    memory.keep_ahead(150, 350)
    assert (memory.pinned_bytes, pool.n_wanted) == (500, 6)  # 250 are held, 350 more may come
    assert pool.n_filled == 0


def test_the_largest_who_runs_finds_a_gap_and_not_only_so_many_bytes(memory: ParkMemory, pool: FakePinnedPool) -> None:
    pool.fill(400)
    small, _large = memory.take(128), memory.take(192)
    small.give_back()
    memory.keep_ahead(180, 180)  # 208 are free, in gaps of 128 and 80
    assert pool.n_wanted == 5
    memory.keep_ahead(120, 120)
    assert pool.n_wanted == 5


def test_no_more_than_the_limit_is_asked_for(memory: ParkMemory, pool: FakePinnedPool) -> None:
    memory.keep_ahead(900, 5000)
    assert pool.n_wanted == LIMIT // PIECE


def test_a_park_that_comes_before_its_memory_is_put_off_and_asks_for_it(
    memory: ParkMemory, pool: FakePinnedPool
) -> None:
    with pytest.raises(NotPinnedYetError):
        memory.take(250)
    assert (pool.n_filled, pool.n_wanted, memory.pinned_bytes) == (0, 3, 0)
    for _ in range(3):
        memory.keep_ahead(0, 0)
    assert memory.take(250).n_bytes == 250


def test_a_park_without_which_nobody_goes_on_locks_the_pieces_that_are_missing(
    memory: ParkMemory, pool: FakePinnedPool
) -> None:
    memory.take(250, may_block=True)
    assert memory.pinned_bytes == 300
    with pytest.raises(NotPinnedYetError):
        memory.take(250, may_block=False)
    with pytest.raises(NotPinnedYetError):
        memory.take(250)
    assert pool.n_filled == 1


def test_a_state_for_which_all_gaps_are_too_small_is_told_so_and_may_come_again(
    memory: ParkMemory, pool: FakePinnedPool
) -> None:
    pool.fill(LIMIT)
    ranges = [memory.take(192) for _ in range(5)]
    for part in ranges[::2]:
        part.give_back()
    for may_block in (False, True):
        with pytest.raises(NoGapError, match="no gap of 300 bytes"):
            memory.take(300, may_block=may_block)  # 616 are free
    ranges[1].give_back()
    assert memory.take(300).n_bytes == 300


def test_a_state_larger_than_all_that_the_device_locks_is_told_that_it_never_will_fit(
    memory: ParkMemory, pool: FakePinnedPool
) -> None:
    pool.refused_above_bytes = 300
    with pytest.raises(PageableBufferError, match="300 can be pinned"):
        memory.take(350, may_block=True)
    part = memory.take(200)
    with pytest.raises(NoGapError):
        memory.take(200)
    part.give_back()
    memory.take(200)


def test_without_a_pool_nothing_is_locked_and_nothing_is_to_be_had() -> None:
    memory = ParkMemory()
    memory.keep_ahead(10, 10)
    memory.rest()
    memory.close()
    assert memory.pinned_bytes == 0
    with pytest.raises(PageableBufferError):
        memory.take(1)


def test_pageable_memory_in_use_leaves_it_less_to_grow(memory: ParkMemory, pool: FakePinnedPool) -> None:
    memory.add_pageable(pageable := Pageable(350))
    memory.keep_ahead(900, 900)
    assert pool.n_wanted == 6
    with pytest.raises(NoGapError):
        memory.take(601, may_block=True)
    pageable.buffer_bytes = 0
    memory.keep_ahead(900, 900)
    assert pool.n_wanted == 6  # it may come again


def test_what_is_too_much_with_pageable_memory_is_unlocked_when_nobody_runs(
    memory: ParkMemory, pool: FakePinnedPool
) -> None:
    pool.fill(LIMIT)
    memory.add_pageable(pageable := Pageable())
    memory.rest()
    assert memory.pinned_bytes == LIMIT
    pageable.buffer_bytes = 350
    memory.rest()
    assert memory.pinned_bytes == 600


def test_closing_it_closes_the_pool(memory: ParkMemory, pool: FakePinnedPool) -> None:
    memory.close()
    assert pool.is_closed


@pytest.mark.parametrize("limit_bytes", [1 << 16, 1 << 20, 5 << 20, 9 << 20, 300 << 20, 8 << 30, (8 << 30) - 12345])
def test_a_piece_is_a_power_of_two_and_a_small_part_of_the_limit(limit_bytes: int) -> None:
    size = piece_bytes(limit_bytes)
    assert size & (size - 1) == 0
    assert 4096 <= size <= LARGEST_PIECE_BYTES
    assert size * 16 <= limit_bytes
    assert size == LARGEST_PIECE_BYTES or size * 32 > limit_bytes


def test_a_limit_of_next_to_nothing_has_a_piece_too() -> None:
    assert piece_bytes(0) == piece_bytes(100) == 4096


@pytest.mark.parametrize("seed", range(10))
def test_whoever_comes_and_goes_locked_memory_keeps_to_the_limit_and_every_byte_comes_back(seed: int) -> None:
    chance = random.Random(seed)
    pool = FakePinnedPool(LIMIT, PIECE, refused_above_bytes=chance.choice([None, 700]))
    memory = ParkMemory(cast(Any, pool))
    held: list[PinnedRange] = []
    for _ in range(300):
        memory.keep_ahead(chance.randrange(400), chance.randrange(1500))
        if held and chance.random() < 0.5:
            held.pop(chance.randrange(len(held))).give_back()
            continue
        n_bytes = chance.randrange(1, 400)
        if pool.held_bytes + n_bytes <= LIMIT:  # what the planner's budget sees to
            with contextlib.suppress(NotPinnedYetError, NoGapError):
                held.append(memory.take(n_bytes, may_block=chance.random() < 0.5))
        assert sum(part.n_bytes for part in held) == pool.held_bytes <= memory.pinned_bytes <= LIMIT
    for part in held:
        part.give_back()
    assert pool.held_bytes == 0
