"""What a `pyggml.Transfer` and its context refuse, and how transfers end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest

from pyggml import (
    ClosedError,
    Context,
    InvalidArgumentError,
    NoRoomError,
    StateError,
    Transfer,
    TransferInFlightError,
    UnappliedUpdateError,
    WrongThreadError,
)
from tests.native.bindings_on_simdev.conftest import N_SEQUENCES, MakeContext, go_on
from tests.native.simdev_library import SimdevLibrary


def test_the_cells_of_a_copy_in_flight_cannot_be_taken_away(
    context: Context, held: Transfer, simdev: SimdevLibrary
) -> None:
    misuses = (
        lambda: context.seq_remove(0),
        lambda: context.seq_remove(0, 5, 6),
        lambda: context.seq_keep(1),
        lambda: context.seq_add(0, None, None, 1),
        lambda: context.clear(),
        lambda: context.restore_state(b"ggsq" + bytes(100), 0),
    )
    n_cells = context.n_cells_used()
    for misuse in misuses:
        with pytest.raises(TransferInFlightError, match="sequence 0 has a copy in flight and cannot be"):
            misuse()
    assert context.n_cells_used() == n_cells
    context.seq_remove(1)  # any other sequence can
    context.seq_copy(0, 1)  # shares the cells: they stay where they are
    assert context.n_cells_used() == n_cells - 20
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
        lambda: transfer.leave_buffer(),
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
