"""`pyggml.Transfer` on a device whose copies come as late as they may: bytes, overlap, waiting, misuse, ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator

import pytest

from pyggml import (
    ClosedError,
    Context,
    InvalidArgumentError,
    NoRoomError,
    PinnedPool,
    StateError,
    Transfer,
    TransferInFlightError,
    UnappliedUpdateError,
    UnsupportedError,
    WrongThreadError,
    rows_by_position,
)
from pyggml.transfers_in_flight import TransfersInFlight
from tests.native.bindings_on_simdev.conftest import N_SEQUENCES, MakeContext, go_on
from tests.native.simdev_library import SimdevLibrary


@pytest.fixture
def transfer(context: Context) -> Iterator[Transfer]:
    with Transfer(context) as made:
        yield made


@pytest.fixture
def held(transfer: Transfer, simdev: SimdevLibrary) -> Iterator[Transfer]:
    """A save of sequence 0 that is in flight until simdev releases it."""
    hold(simdev, transfer)
    yield transfer
    simdev.release()  # before anybody waits for it


def hold(simdev: SimdevLibrary, transfer: Transfer, seq_id: int = 0) -> None:
    simdev.set("hold", 1)
    transfer.save(seq_id)
    simdev.set("hold", 0)


# -- bytes -------------------------------------------------------------------------------------------------------------


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


# -- overlap and waiting -----------------------------------------------------------------------------------------------


def test_other_sequences_decode_while_a_copy_is_in_flight(
    context: Context, transfer: Transfer, simdev: SimdevLibrary
) -> None:
    before = rows_by_position(context.save_state(0))
    hold(simdev, transfer)
    for first in range(20, 60):
        go_on(context, 1, first, 1)
        context.logits()
        assert not transfer.done()
    simdev.release()
    transfer.wait()
    assert context.seq_pos_max(1) == 59
    assert rows_by_position(transfer.state) == before


def test_two_transfers_overlap(context: Context, simdev: SimdevLibrary) -> None:
    with Transfer(context) as first, Transfer(context) as second:
        hold(simdev, first, 0)
        second.save(1)
        while not second.done():
            pass
        assert not first.done()
        simdev.release()
        first.wait()


def test_awaiting_a_transfer_lets_other_coroutines_run(context: Context, held: Transfer, simdev: SimdevLibrary) -> None:
    async def decode_and_release() -> int:
        for first in range(20, 30):
            go_on(context, 1, first, 1)
            await asyncio.sleep(0)
        assert not held.done()
        simdev.release()
        return 10

    async def both() -> list[object]:
        return list(await asyncio.gather(ended(held), decode_and_release()))

    async def ended(transfer: Transfer) -> Transfer:
        return await transfer

    assert asyncio.run(both()) == [held, 10]
    assert held.done()


def test_a_decode_that_applies_a_shift_waits_for_copies(context: Context, transfer: Transfer) -> None:
    before = rows_by_position(context.save_state(0))
    transfer.save(0)
    context.seq_remove(1, 0, 5)
    context.seq_add(1, 5, None, -5)
    go_on(context, 1, 15, 1)
    assert transfer.done()
    assert rows_by_position(transfer.state) == before


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_the_cells_of_a_copy_in_flight_cannot_be_taken_away(
    context: Context, held: Transfer, simdev: SimdevLibrary
) -> None:
    misuses = (
        lambda: context.seq_remove(0),
        lambda: context.seq_remove(0, 5, 6),
        lambda: context.seq_keep(1),
        lambda: context.seq_add(0, None, None, 1),
        lambda: context.seq_copy(0, 1),
        lambda: context.clear(),
        lambda: context.restore_state(b"ggsq" + bytes(100), 0),
    )
    n_cells = context.n_cells_used()
    for misuse in misuses:
        with pytest.raises(TransferInFlightError, match="sequence 0 has a copy in flight and cannot be"):
            misuse()
    assert context.n_cells_used() == n_cells
    context.seq_remove(1)  # any other sequence can
    simdev.release()
    held.wait()
    context.seq_remove(0)


def test_a_transfer_with_a_copy_in_flight_takes_no_other(context: Context, held: Transfer) -> None:
    for misuse in (
        lambda: held.save(1),
        lambda: held.restore(1),
        lambda: held.load(b"x"),
        lambda: held.reserve(10**6),
        lambda: held.state,
    ):
        with pytest.raises(TransferInFlightError, match="the transfer's copy is in flight"):
            misuse()
    with (
        Transfer(context) as other,
        pytest.raises(TransferInFlightError, match="cannot be saved by another transfer"),
    ):
        other.save(0)


def test_a_sequence_with_an_unapplied_shift_is_refused(context: Context, transfer: Transfer) -> None:
    context.seq_add(0, None, None, 3)
    with pytest.raises(UnappliedUpdateError, match="decode first"):
        transfer.save(0)
    assert transfer.done()


def test_a_transfer_without_a_state_has_nothing_to_show_or_restore(transfer: Transfer) -> None:
    with pytest.raises(StateError, match="holds no state"):
        transfer.restore(0)
    with pytest.raises(StateError, match="holds no state"):
        _ = transfer.state
    with pytest.raises(InvalidArgumentError, match="no bytes to load"):
        transfer.load(b"")


def test_a_save_into_too_little_room_copies_nothing(context: Context, transfer: Transfer) -> None:
    with pytest.raises(StateError):
        transfer.save(0, n_bytes=context.state_size(0) - 1)
    assert (transfer.done(), transfer.n_state_bytes) == (True, 0)


def test_a_restore_without_room_keeps_the_state_and_leaves_the_sequence_empty(
    context: Context, transfer: Transfer
) -> None:
    transfer.save(0)
    transfer.wait()
    n_bytes = transfer.n_state_bytes
    context.seq_remove(0)
    go_on(context, 1, 20, context.n_ctx - context.n_cells_used())
    with pytest.raises(NoRoomError, match="remove a sequence first"):
        transfer.restore(0)
    assert (context.seq_pos_max(0), transfer.n_state_bytes, transfer.done()) == (None, n_bytes, True)
    context.seq_remove(1)
    transfer.restore(0)


def test_no_sequence_beyond_the_last_can_be_saved_or_restored(transfer: Transfer) -> None:
    transfer.save(0)
    transfer.wait()
    for copy in (transfer.save, transfer.restore):
        with pytest.raises(InvalidArgumentError, match=f"sequence {N_SEQUENCES} does not exist"):
            copy(N_SEQUENCES)


def test_a_view_of_the_state_is_read_only_and_keeps_its_buffer(context: Context, transfer: Transfer) -> None:
    transfer.save(0)
    transfer.wait()
    view = transfer.state
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    for misuse in (
        lambda: transfer.save(1),
        lambda: transfer.load(b"x"),
        lambda: transfer.reserve(10**7),
        lambda: transfer.release_buffer(),
    ):
        with pytest.raises(BufferError, match="drop the view"):
            misuse()
    expected = context.save_state(0).tobytes()
    transfer.close()
    assert view.tobytes() == expected


def test_another_thread_is_refused(held: Transfer) -> None:
    refused: list[Exception] = []

    def misuse() -> None:
        for call in (lambda: held.save(1), held.done, held.wait):
            try:
                call()
            except WrongThreadError as error:
                refused.append(error)

    thread = threading.Thread(target=misuse)
    thread.start()
    thread.join()
    assert len(refused) == 3


# -- ends --------------------------------------------------------------------------------------------------------------


def test_cancel_waits_and_forgets_the_state(context: Context, transfer: Transfer) -> None:
    transfer.save(0)
    transfer.cancel()
    assert (transfer.done(), transfer.n_state_bytes) == (True, 0)
    context.seq_remove(0)


def test_a_context_that_is_closed_first_waits_and_leaves_the_state_readable(
    make_context: MakeContext, context: Context
) -> None:
    expected = context.save_state(0).tobytes()
    transfer = Transfer(context)
    transfer.save(0)
    context.close()
    assert transfer.done()
    assert transfer.state.tobytes() == expected
    with pytest.raises(ClosedError):
        transfer.save(0)
    other = make_context()
    other.restore_state(transfer.state, 0)
    assert other.save_state(0).tobytes()[8:] == expected[8:]
    transfer.close()


def test_a_transfer_that_is_closed_takes_no_call(transfer: Transfer) -> None:
    transfer.close()
    transfer.close()
    assert transfer.closed
    misuses: list[Callable[[], object]] = [
        lambda: transfer.save(0),
        lambda: transfer.buffer_bytes,
        lambda: transfer.restore(0),
    ]
    for misuse in misuses:
        with pytest.raises(ClosedError, match="this transfer is closed"):
            misuse()


def test_a_transfer_that_is_forgotten_in_flight_waits_for_its_copy(context: Context, simdev: SimdevLibrary) -> None:
    transfer = Transfer(context)
    transfer.save(0)
    del transfer
    gc.collect()
    assert simdev.n_pending == 0
    context.seq_remove(0)


def test_a_transfer_that_another_thread_forgets_is_freed_on_its_contexts_thread(context: Context) -> None:
    box = [Transfer(context)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert len(context._left_over) == 1
    go_on(context, 0, 20, 1)
    assert len(context._left_over) == 0


# -- devices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "reason"),
    [("async", "does not copy asynchronously"), ("events", "has no events"), ("event_query", "has no event query")],
)
def test_a_device_without_what_it_takes_is_refused_with_the_reason(
    knob: str, reason: str, simdev: SimdevLibrary, make_context: MakeContext
) -> None:
    simdev.set(knob, 0)
    context = make_context()
    with pytest.raises(
        UnsupportedError, match=f"cannot copy asynchronously: a part of the memory is on SIM0, which {reason}"
    ):
        Transfer(context)
    with pytest.raises(UnsupportedError, match="the log said why before"):
        Transfer(context)


def test_memory_that_turns_out_pageable_says_so(simdev: SimdevLibrary, transfer: Transfer) -> None:
    simdev.set("pageable_above_bytes", 1000)
    transfer.reserve(1000)
    assert transfer.is_pinned
    transfer.reserve(1001)
    assert (transfer.is_pinned, transfer.can_pin) == (False, True)


# -- planted faults ----------------------------------------------------------------------------------------------------


def test_a_planted_early_release_of_cells_changes_the_saved_rows(
    context: Context, transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_by_position(context.save_state(0))
    monkeypatch.setattr(TransfersInFlight, "check_none", lambda *_: None)
    transfer.save(0)
    context.seq_remove(0)
    go_on(context, 1, 20, 40)
    context.synchronize()
    transfer.wait()
    assert rows_by_position(transfer.state) != before


def test_a_planted_early_reuse_of_a_buffer_changes_the_restored_rows(context: Context, transfer: Transfer) -> None:
    before = rows_by_position(context.save_state(0))
    transfer.save(0)
    transfer.wait()
    context.seq_remove(0)
    transfer.restore(0)
    transfer._writable_state()[-500:] = 0
    transfer.wait()
    assert rows_by_position(context.save_state(0)) != before
