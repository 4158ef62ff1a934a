"""`Transfer.prefetch`: a state goes to staging memory while its sequence has no cells, and into cells from there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyggml import (
    Context,
    InvalidArgumentError,
    NoRoomError,
    StateError,
    Transfer,
    TransferInFlightError,
    rows_by_position,
)
from tests.native.bindings_on_simdev.conftest import MakeContext, go_on
from tests.native.simdev_library import SimdevLibrary

MIB = 1024**2
HALF_BYTES = 64 * 1024  # room for the states of 30 cells, not for 60
CELL_BYTES = 12  # position, number of sequences, sequence


@pytest.fixture
def staged(make_context: MakeContext) -> Context:
    """Three sequences of 20 cells, with staging memory for many states."""
    made = make_context(n_bytes_staging=MIB)
    for seq_id in range(3):
        go_on(made, seq_id, 0, 20)
    return made


@pytest.fixture
def parked(staged: Context) -> Iterator[Transfer]:
    """Sequence 0's state; the sequence is empty."""
    with Transfer(staged, is_staged=True) as made:
        made.save(0)
        staged.seq_remove(0)
        made.wait()
        yield made


@pytest.fixture
def small_staging(make_context: MakeContext) -> Context:
    """Its staging memory holds the state of 30 cells once in each direction."""
    return make_context(n_bytes_staging=2 * HALF_BYTES)


@pytest.fixture
def two_parked(small_staging: Context) -> Iterator[tuple[Transfer, Transfer]]:
    """The states of sequences 0 and 1, 30 cells each; both sequences are empty."""
    for seq_id in range(2):
        go_on(small_staging, seq_id, 0, 30)
    with Transfer(small_staging, is_staged=True) as first, Transfer(small_staging, is_staged=True) as second:
        for seq_id, transfer in enumerate((first, second)):
            transfer.save(seq_id)
            transfer.wait()
            small_staging.seq_remove(seq_id)
        yield first, second


def prefetch_held(simdev: SimdevLibrary, transfer: Transfer) -> None:
    simdev.set("hold", 1)
    assert transfer.prefetch()
    simdev.set("hold", 0)


def test_no_cells_are_taken_while_a_state_is_on_its_way_to_staging(
    staged: Context, parked: Transfer, simdev: SimdevLibrary
) -> None:
    prefetch_held(simdev, parked)
    go_on(staged, 1, 20, staged.n_ctx - 40)  # all the others, during the copy
    staged.logits()
    assert (staged.n_cells_used(), staged.seq_pos_max(0), parked.done()) == (staged.n_ctx, None, False)
    staged.seq_remove(1)
    simdev.release()
    parked.wait()
    assert staged.n_cells_used() == 20


def test_what_was_prefetched_comes_back_as_it_was(staged: Context, parked: Transfer) -> None:
    before = rows_by_position(parked.state)
    assert parked.prefetch()
    parked.wait()
    go_on(staged, 1, 20, 30)
    parked.restore(2)
    go_on(staged, 2, 20, 1)  # at once
    parked.wait()
    staged.seq_remove(2, 20)
    assert rows_by_position(staged.save_state(2)) == before


def test_a_restore_need_not_wait_for_the_prefetch(staged: Context, parked: Transfer) -> None:
    before = rows_by_position(parked.state)
    assert parked.prefetch()
    parked.restore(0)
    parked.wait()
    assert rows_by_position(staged.save_state(0)) == before


def test_a_dropped_prefetch_leaves_the_state_and_its_room_in_staging_memory(
    small_staging: Context, two_parked: tuple[Transfer, Transfer]
) -> None:
    first, second = two_parked
    before = rows_by_position(first.state)
    first.drop_prefetch()  # nothing to drop
    assert first.prefetch()
    assert not second.prefetch()  # the half for restores holds one
    first.drop_prefetch()
    assert first.done()
    assert second.prefetch()
    second.restore(1)
    first.restore(0)
    first.wait()
    second.wait()
    assert rows_by_position(small_staging.save_state(0)) == before


def test_a_prefetch_in_flight_takes_no_other_copy(parked: Transfer, simdev: SimdevLibrary) -> None:
    prefetch_held(simdev, parked)
    for misuse in (lambda: parked.save(1), lambda: parked.reserve(MIB), lambda: parked.state):
        with pytest.raises(TransferInFlightError):
            misuse()
    assert parked.prefetch()  # has been issued
    simdev.release()


def test_a_restore_without_room_keeps_what_was_prefetched(staged: Context, parked: Transfer) -> None:
    before = rows_by_position(parked.state)
    assert parked.prefetch()
    go_on(staged, 1, 20, staged.n_ctx - 40)
    with pytest.raises(NoRoomError, match="remove a sequence first"):
        parked.restore(0)
    staged.seq_remove(1)
    assert parked.prefetch()
    parked.restore(0)
    parked.wait()
    assert rows_by_position(staged.save_state(0)) == before


def test_a_state_that_is_loaded_over_a_prefetched_one_is_the_one_that_comes(staged: Context, parked: Transfer) -> None:
    other = staged.save_state(1)
    assert parked.prefetch()
    parked.load(other)
    parked.restore(0)
    parked.wait()
    assert rows_by_position(staged.save_state(0)) == rows_by_position(other)


def test_what_cannot_go_to_staging_memory_is_not_issued(
    staged: Context, context: Context, make_context: MakeContext
) -> None:
    with Transfer(staged, is_staged=True) as empty, pytest.raises(StateError, match="holds no state"):
        empty.prefetch()
    small = make_context(n_bytes_staging=2 * HALF_BYTES)
    go_on(small, 0, 0, 200)
    for made, is_staged in ((context, False), (small, True)):
        with Transfer(made, is_staged=is_staged) as transfer:
            transfer.save(0)
            transfer.wait()
            assert (transfer.prefetch(), transfer.done()) == (False, True)


@pytest.mark.parametrize("way", ["load", "blank"])
def test_a_state_from_elsewhere_is_prefetched_too(
    staged: Context, make_context: MakeContext, simdev: SimdevLibrary, way: str
) -> None:
    other = make_context()
    go_on(other, 0, 0, 25)
    state = other.save_state(0)
    staged.seq_remove(0)
    with Transfer(staged, is_staged=True) as transfer:
        if way == "load":
            transfer.load(state)
        else:
            transfer.blank(len(state))[:] = state
        prefetch_held(simdev, transfer)
        go_on(staged, 1, 20, 1)
        staged.logits()
        assert (transfer.done(), staged.n_cells_used()) == (False, 41)
        simdev.release()
        transfer.restore(0)
        transfer.wait()
        assert rows_by_position(staged.save_state(0)) == rows_by_position(state)


@pytest.mark.parametrize("damage", ["cut off", "magic", "n_streams", "n_cells", "n_seq_ids", "n_layers", "type"])
def test_damaged_bytes_are_not_prefetched_and_nothing_is_lost(staged: Context, damage: str) -> None:
    others = [rows_by_position(staged.save_state(seq_id)) for seq_id in (1, 2)]
    state = staged.save_state(0)
    staged.seq_remove(0)
    first_layer = 16 + 20 * CELL_BYTES
    at = {
        "magic": 0,
        "n_streams": 8,
        "n_cells": 13,
        "n_seq_ids": 20,
        "n_layers": first_layer + 4,
        "type": first_layer + 8,
    }
    damaged = state.copy()
    if damage == "cut off":
        damaged = damaged[:-1]
    else:
        damaged[at[damage]] ^= 0xFF
    with Transfer(staged, is_staged=True) as transfer:
        transfer.load(damaged)
        assert (transfer.prefetch(), transfer.done(), transfer.n_state_bytes) == (False, True, len(damaged))
        with pytest.raises(NoRoomError if damage == "n_cells" else StateError):
            transfer.restore(0)
        assert [rows_by_position(staged.save_state(seq_id)) for seq_id in (1, 2)] == others
        transfer.load(state)
        assert transfer.prefetch()
        transfer.restore(0)
        transfer.wait()
        assert rows_by_position(staged.save_state(0)) == rows_by_position(state)


def test_a_place_in_staging_memory_is_taken_until_it_is_given_back(two_parked: tuple[Transfer, Transfer]) -> None:
    first, second = two_parked
    assert first.n_state_bytes < HALF_BYTES < 2 * first.n_state_bytes
    assert (first.prefetch(), second.prefetch()) == (True, False)
    first.cancel()
    assert not second.prefetch()
    first.release_buffer()
    assert second.prefetch()


def test_a_restore_that_finds_no_room_gives_its_place_in_staging_memory_back(
    small_staging: Context, two_parked: tuple[Transfer, Transfer]
) -> None:
    """It sends the state ahead while it looks for cells."""
    first, second = two_parked
    before = rows_by_position(first.state)
    go_on(small_staging, 2, 0, small_staging.n_ctx)
    with pytest.raises(NoRoomError):
        first.restore(0)
    assert second.prefetch()  # the half for restores holds one
    second.drop_prefetch()
    small_staging.seq_remove(2)
    first.restore(0)
    first.wait()
    assert rows_by_position(small_staging.save_state(0)) == before


def test_a_sequence_takes_another_state_while_its_own_is_on_the_link(
    staged: Context, parked: Transfer, simdev: SimdevLibrary
) -> None:
    """What a save that has freed its cells still copies is no longer the sequence's."""
    parked_rows = rows_by_position(parked.state)
    with Transfer(staged, is_staged=True) as leaving:
        own_rows = rows_by_position(staged.save_state(1))
        simdev.set("hold", 1)
        leaving.save(1)
        simdev.set("hold", 0)
        assert (leaving.freed_on_issue, leaving.done()) == (True, False)
        parked.restore(1)
        simdev.release()
        leaving.wait()
        parked.wait()
        assert rows_by_position(leaving.state) == own_rows
        assert rows_by_position(staged.save_state(1)) == parked_rows


def test_a_transfer_that_is_closed_while_it_prefetches_waits(
    staged: Context, parked: Transfer, simdev: SimdevLibrary
) -> None:
    staged.synchronize()
    assert simdev.n_pending == 0
    assert parked.prefetch()
    assert simdev.n_pending > 0
    parked.close()
    assert simdev.n_pending == 0


def test_a_state_comes_in_parts_and_the_restore_brings_what_is_left(staged: Context, parked: Transfer) -> None:
    before = rows_by_position(parked.state)
    n_part = parked.n_state_bytes // 3
    left = [parked.prefetch_left_bytes]
    for position in (20, 21):
        assert parked.prefetch(n_part)
        left.append(parked.prefetch_left_bytes)
        go_on(staged, 1, position, 1)  # meanwhile
    assert left[0] == 0
    assert parked.n_state_bytes > left[1] > left[2] > 0
    parked.restore(0)
    parked.wait()
    assert parked.prefetch_left_bytes == 0
    assert rows_by_position(staged.save_state(0)) == before


def test_a_part_of_no_bytes_is_refused(parked: Transfer) -> None:
    with pytest.raises(InvalidArgumentError, match="n_bytes is 0"):
        parked.prefetch(0)
