"""Who goes on and who waits while a `pyggml.Transfer` has a copy in flight; devices that cannot."""

from __future__ import annotations

import asyncio

import pytest

from pyggml import (
    Context,
    Transfer,
    TransferInFlightError,
    UnsupportedError,
    rows_by_position,
)
from tests.native.bindings_on_simdev.conftest import MakeContext, go_on, hold
from tests.native.simdev_library import SimdevLibrary


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


def test_a_transfer_that_went_on_to_another_sequence_holds_the_first_no_more(
    context: Context, transfer: Transfer, simdev: SimdevLibrary
) -> None:
    transfer.save(0)
    while not transfer.done():
        pass
    hold(simdev, transfer, 1)
    context.seq_remove(0)
    with pytest.raises(TransferInFlightError, match="sequence 1"):
        context.seq_remove(1)
    simdev.release()


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
