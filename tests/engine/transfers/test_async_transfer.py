"""Which transfer a slot gets, and what becomes of it where pinned memory is promised and does not come."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.startup import build_state
from pyggml_server.engine.transfers.async_transfer import AsyncTransfer
from pyggml_server.engine.transfers.park_memory import ParkMemory
from pyggml_server.engine.transfers.size_estimate import SizeEstimate
from pyggml_server.engine.transfers.transfer import TransferRefusedError
from pyggml_server.native.runtime import Runtime

from tests.engine.fake_device import (
    MIB,
    N_CELL_BYTES,
    N_HEAD_BYTES,
    N_STATE_BYTES,
    Device,
    FakeContext,
    FakeNative,
    FakeRuntime,
)
from tests.engine.pinned_pool import FakePinnedPool


def build(device: Device, **options: Any) -> EngineState:
    """A budget of 32 MiB, so pieces of 2."""
    options = {"staging_mib": 0, "ram_mib": 32, **options}
    return build_state(cast(Runtime, FakeRuntime(device)), PreemptOptions(**options))


def banner(caplog: pytest.LogCaptureFixture) -> str:
    (line,) = (text for record in caplog.records if (text := record.getMessage()).startswith("preemption:"))
    return line


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_the_banner_says_that_copies_are_asynchronous_and_what_is_offered(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    build(device)
    assert banner(caplog) == (
        "preemption: on, asynchronous copies, pinned memory offered (4.0 MiB locked), no staging memory, "
        "up to 32 MiB, policy smallest"
    )
    assert device.n_transfers == 2  # one for each slot; the probe is gone


def test_no_preempt_async_makes_no_transfer_at_all(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    build(device, use_async=False)
    assert "synchronous copies to pageable memory (--no-preempt-async)" in banner(caplog)
    assert device.n_transfers == 0


def test_a_device_that_cannot_copy_asynchronously_is_told_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    build(Device(obstacle="its events cannot be queried"))
    assert "synchronous copies to pageable memory (its events cannot be queried)" in banner(caplog)


def test_memory_that_is_pageable_at_the_probe_gives_every_transfer_up(caplog: pytest.LogCaptureFixture) -> None:
    device = Device(locks_bytes=0)
    state = build(device)
    assert "synchronous copies to pageable memory (there is no pinned memory)" in banner(caplog)
    assert (device.n_transfers, device.pools[0].is_closed, state.memory.pinned_bytes) == (0, True, 0)
    state.slot(0).transfer.save(0)
    assert state.slot(0).transfer.is_done()


def test_memory_that_is_pageable_only_at_size_makes_that_slot_park_synchronously_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Device(locks_bytes=2 * MIB)
    state = build(device)
    transfer = state.slot(0).transfer
    assert transfer.frees_on_completion
    for _ in range(2):
        transfer.save(0)
        assert (transfer.is_done(), transfer.frees_on_completion, transfer.pinned_bytes) == (True, False, 0)
        assert transfer.state_bytes == N_STATE_BYTES
        transfer.drop()
    assert device.n_transfers == 1  # the other slot has not parked yet
    assert state.slot(1).transfer.frees_on_completion
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"slot 0: parks synchronously from now on: a state of {N_STATE_BYTES} bytes, but only {2 * MIB} can be pinned"
    ]


def test_a_slot_that_finds_no_gap_parks_synchronously_once_and_asynchronously_again_when_there_is_one() -> None:
    state = build(Device(), ram_mib=10)  # pieces of 512 KiB
    held = [state.memory.take(3 * MIB, may_block=True), state.memory.take(4 * MIB, may_block=True)]
    held.pop(0).give_back()  # 6 MiB of 10 are free, in two gaps
    transfer = state.slot(0).transfer
    transfer.save(0)
    assert (transfer.is_done(), transfer.frees_on_completion) == (True, False)
    assert (transfer.state_bytes, transfer.buffer_bytes, transfer.pinned_bytes) == (N_STATE_BYTES, N_STATE_BYTES, 0)
    transfer.restore(0)
    assert (transfer.state_bytes, transfer.frees_on_completion) == (0, True)
    held.pop().give_back()
    transfer.save(0)
    assert (transfer.is_done(), transfer.pinned_bytes) == (False, N_STATE_BYTES)
    transfer.drop()


def test_the_states_of_the_whole_pool_are_pinned_at_load_and_nobody_holds_them() -> None:
    device = Device()
    state = build(device)
    assert state.memory.pinned_bytes == 512 * N_CELL_BYTES
    assert (state.ram_held_bytes(), device.pools[0].held_bytes) == (0, 0)
    assert state.runtime.context.n_cells_of_0 == 0  # type: ignore[attr-defined]


def test_no_more_than_a_quarter_of_the_budget_is_pinned_at_load() -> None:
    assert build(Device(), ram_mib=8).memory.pinned_bytes == 2 * MIB


def test_what_the_device_locks_at_load_is_what_there_is(caplog: pytest.LogCaptureFixture) -> None:
    state = build(Device(locks_bytes=2 * MIB))
    assert state.memory.pinned_bytes == 2 * MIB
    assert "pinned memory offered (2.0 MiB locked)" in banner(caplog)
    assert all(slot.transfer.frees_on_completion for slot in state.slots)


def test_the_state_of_a_draft_lies_in_the_same_pool() -> None:
    device = Device()
    state = build_state(cast(Runtime, FakeRuntime(device, n_contexts=2)), PreemptOptions(ram_mib=64, staging_mib=0))
    state.slot(0).transfer.save(0, may_block=True)
    (pool,) = device.pools
    assert (state.slot(0).transfer.pinned_bytes, pool.held_bytes) == (2 * N_STATE_BYTES, 2 * N_STATE_BYTES)
    endings.close_transfers(state)
    assert (device.n_transfers, pool.held_bytes, pool.is_closed) == (0, 0, True)


def test_the_end_gives_every_transfer_up_and_then_the_pool() -> None:
    device = Device()
    state = build(device)
    state.slot(0).transfer.save(0)
    endings.close_transfers(state)
    assert (device.n_transfers, device.pools[0].is_closed) == (0, True)


def test_without_preemption_no_transfer_is_made(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    build_state(cast(Runtime, FakeRuntime(device)), PreemptOptions(ram_mib=0))
    assert banner(caplog) == "preemption: off, --preempt-ram is 0"
    assert device.n_transfers == 0


def test_with_staging_memory_a_park_frees_cells_at_once_where_its_state_fits(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    transfer = build(device, staging_mib=2).slot(0).transfer
    assert "2 MiB of staging memory" in banner(caplog)
    assert not transfer.frees_on_completion  # to be expected
    for staging_bytes, frees_on_completion in ((N_STATE_BYTES - 1, True), (N_STATE_BYTES, False)):
        device.staging_bytes = staging_bytes
        transfer.save(0)
        assert transfer.frees_on_completion == frees_on_completion
        transfer.drop()


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def pool(device: Device) -> FakePinnedPool:
    """Locked for two states."""
    made = device.new_pool(16 * MIB, MIB)
    made.fill(2 * N_STATE_BYTES)
    return made


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def transfer(device: Device, pool: FakePinnedPool, context: FakeContext) -> AsyncTransfer:
    estimate = SizeEstimate(N_HEAD_BYTES, N_CELL_BYTES)
    return AsyncTransfer(context, FakeNative(device), ParkMemory(cast(Any, pool)), estimate)


def test_a_park_asks_for_no_size_and_holds_what_its_state_needs(
    transfer: AsyncTransfer, context: FakeContext, pool: FakePinnedPool
) -> None:
    context.n_cells_of_0 = 600  # by the estimate more than it is
    transfer.save(0)
    assert (context.n_asked, transfer.state_bytes) == (0, N_STATE_BYTES)
    assert transfer.buffer_bytes == transfer.pinned_bytes == pool.held_bytes == N_STATE_BYTES
    assert pool.take(N_STATE_BYTES) is not None  # right behind it
    transfer.drop()
    assert pool.held_bytes == N_STATE_BYTES


@pytest.mark.parametrize("n_cells", [10, 1500])
def test_a_park_asks_for_the_size_where_the_estimate_is_too_small_or_finds_no_gap(
    n_cells: int,
    transfer: AsyncTransfer,
    context: FakeContext,
    pool: FakePinnedPool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context.n_cells_of_0 = n_cells
    monkeypatch.setattr(context, "state_size", lambda _: N_STATE_BYTES)
    transfer.save(0)
    assert (transfer.state_bytes, transfer.buffer_bytes, pool.held_bytes) == (N_STATE_BYTES,) * 3


def test_a_restored_state_is_forgotten_when_it_has_completed_and_its_memory_is_nobodys(
    transfer: AsyncTransfer, pool: FakePinnedPool
) -> None:
    transfer.save(0)
    assert not transfer.is_done()
    transfer.wait()
    assert transfer.buffer_bytes == transfer.pinned_bytes == pool.held_bytes == N_STATE_BYTES
    transfer.restore(0)
    assert (transfer.is_done(), transfer.state_bytes, pool.held_bytes) == (False, N_STATE_BYTES, N_STATE_BYTES)
    transfer.wait()
    assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes, pool.held_bytes) == (True, 0, 0, 0)


def test_a_restore_that_is_refused_keeps_the_state(transfer: AsyncTransfer) -> None:
    transfer.save(0)
    transfer.wait()
    with pytest.raises(TransferRefusedError, match="sequence 1 could not be restored: no cells"):
        transfer.restore(1)
    assert (transfer.is_done(), transfer.state_bytes) == (True, N_STATE_BYTES)


def test_a_state_that_staging_memory_can_hold_goes_there_before_it_has_cells(
    transfer: AsyncTransfer, device: Device
) -> None:
    transfer.save(0)
    transfer.wait()
    for staging_bytes, is_issued in ((N_STATE_BYTES - 1, False), (N_STATE_BYTES, True)):
        device.staging_bytes = staging_bytes
        assert (transfer.prefetch(), transfer.is_done()) == (is_issued, not is_issued)
    transfer.wait()
    assert transfer.state_bytes == N_STATE_BYTES
    transfer.prefetch()
    transfer.drop()
    assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes) == (True, 0, 0)


def test_a_park_that_is_refused_holds_nothing(transfer: AsyncTransfer, device: Device, pool: FakePinnedPool) -> None:
    device.refuses_saves = True
    with pytest.raises(TransferRefusedError, match="sequence 0 could not be saved: a shift is pending"):
        transfer.save(0)
    assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes, pool.held_bytes) == (True, 0, 0, 0)


def test_a_dropped_buffer_is_nobodys_at_once_and_stays_pinned(transfer: AsyncTransfer, pool: FakePinnedPool) -> None:
    for _ in range(3):
        transfer.save(0)
        transfer.drop()
        assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes) == (True, 0, 0)
    assert (pool.held_bytes, pool.pinned_bytes, pool.n_filled) == (0, 2 * N_STATE_BYTES, 1)


def test_a_transfer_that_is_closed_gives_its_memory_back(
    transfer: AsyncTransfer, device: Device, pool: FakePinnedPool
) -> None:
    transfer.save(0)
    transfer.close()
    transfer.close()
    assert (device.n_transfers, pool.held_bytes) == (0, 0)
