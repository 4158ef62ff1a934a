"""Which transfer a slot gets, and what becomes of it where page-locked memory is promised and does not come."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from pyggml_server.config import PreemptOptions
from pyggml_server.engine.async_transfer import AsyncTransfer
from pyggml_server.engine.kept_buffers import KeptBuffers
from pyggml_server.engine.startup import build_state
from pyggml_server.engine.state import EngineState
from pyggml_server.engine.transfer import TransferRefusedError
from pyggml_server.engine.transfer_choice import PROBE_BYTES
from pyggml_server.native.runtime import BatchArrays, PyggmlError, Row, Runtime, Sample, UnsupportedError

N_STATE_BYTES = 4 * PROBE_BYTES
N_ROOMY_BYTES = N_STATE_BYTES + N_STATE_BYTES // 2
N_CELL_BYTES = 8192


class Device:
    """What a device gives: which buffers are page-locked, how many transfers live, and what was asked of them."""

    def __init__(self, pageable_above_bytes: int | None = None, obstacle: str | None = None) -> None:
        self.pageable_above_bytes = pageable_above_bytes
        self.obstacle = obstacle
        self.n_transfers = 0
        self.staging_bytes = 0
        self.is_out_of_memory = False


class FakeNative:
    """The bindings' Transfer over a Device; a copy is in flight until `has_landed`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        device.n_transfers += 1
        self.buffer_bytes = 0
        self.n_state_bytes = 0
        self.in_flight = False
        self.closed = False

    @property
    def is_pinned(self) -> bool:
        limit = self.device.pageable_above_bytes
        return self.buffer_bytes > 0 and (limit is None or self.buffer_bytes <= limit)

    def reserve(self, n_bytes: int) -> None:
        assert not self.in_flight
        if self.device.is_out_of_memory:
            raise MemoryError(f"no memory for a buffer of {n_bytes} bytes")
        self.buffer_bytes = max(self.buffer_bytes, n_bytes)

    def release_buffer(self) -> None:
        self.cancel()
        self.buffer_bytes = 0

    def save(self, seq_id: int, n_bytes: int | None = None) -> int:
        assert seq_id == 0
        assert n_bytes is not None
        assert self.is_pinned
        self.n_state_bytes, self.in_flight = n_bytes, True
        return n_bytes

    @property
    def freed_on_issue(self) -> bool:
        return 0 < self.n_state_bytes <= self.device.staging_bytes

    def restore(self, seq_id: int) -> int:
        if seq_id != 0:
            raise PyggmlError("no cells")
        self.in_flight = True
        return self.n_state_bytes

    def done(self) -> bool:
        return not self.in_flight

    def wait(self) -> None:
        self.in_flight = False

    def cancel(self) -> None:
        self.wait()
        self.n_state_bytes = 0

    def close(self) -> None:
        assert not self.closed
        self.wait()
        self.closed = True
        self.device.n_transfers -= 1


class FakeContext:
    """Every sequence's state has the same size."""

    def __init__(self) -> None:
        self.n_cells_of_0 = 0

    def state_size(self, seq_id: int) -> int:
        assert seq_id == 0
        return N_CELL_BYTES if self.n_cells_of_0 == 1 else N_STATE_BYTES

    def seq_remove(self, seq_id: int) -> None:
        assert seq_id == 0
        self.n_cells_of_0 = 0

    def note_decoded(self) -> None:
        return None

    def save_state(self, seq_id: int, out: Any) -> None:
        assert (seq_id, len(out)) == (0, N_STATE_BYTES)


class FakeRuntime:
    """Two slots on a device."""

    n_slots, n_ctx, n_ctx_slot = 2, 512, 512
    has_memory, is_unified, is_recurrent, speculates = True, True, False, False

    def __init__(self, device: Device) -> None:
        self.device = device
        self.context = FakeContext()

    def step(self, batch: BatchArrays, rows: list[Row]) -> tuple[int, list[Sample]]:
        assert (len(batch.token), rows) == (1, [])
        self.context.n_cells_of_0 = 1
        return 0, []

    def contexts(self) -> list[FakeContext]:
        return [self.context]

    def new_transfer(self, context: FakeContext) -> FakeNative:
        assert context is self.context
        if self.device.obstacle is not None:
            raise UnsupportedError(self.device.obstacle)
        return FakeNative(self.device)


def build(device: Device, **options: Any) -> EngineState:
    options = {"staging_mib": 0, **options}
    return build_state(cast(Runtime, FakeRuntime(device)), PreemptOptions(ram_mib=64, **options))


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
        "preemption: on, asynchronous copies, page-locked memory offered, no staging memory, up to 64 MiB, "
        "policy smallest"
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


def test_memory_that_is_pageable_at_the_probe_gives_every_transfer_up_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Device(pageable_above_bytes=0)
    state = build(device)
    assert "synchronous copies to pageable memory (there is no page-locked memory)" in banner(caplog)
    assert device.n_transfers == 0
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    state.slot(0).transfer.save(0)
    assert state.slot(0).transfer.is_done()


def test_memory_that_is_pageable_only_at_size_makes_that_slot_park_synchronously_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = Device(pageable_above_bytes=PROBE_BYTES)
    state = build(device)
    transfer = state.slot(0).transfer
    assert transfer.frees_on_landing
    for _ in range(2):
        transfer.save(0)
        assert (transfer.is_done(), transfer.frees_on_landing, transfer.pinned_bytes) == (True, False, 0)
        assert transfer.state_bytes == N_STATE_BYTES
        transfer.drop()
    assert device.n_transfers == 1  # the other slot has not parked yet
    assert state.slot(1).transfer.frees_on_landing
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        f"slot 0: parks synchronously from now on: a buffer of {N_STATE_BYTES} bytes is not page-locked"
    ]


def test_each_slot_has_its_share_of_the_pool_page_locked_at_load_and_nobody_holds_it() -> None:
    state = build(Device())
    assert [slot.transfer.pinned_bytes for slot in state.slots] == [256 * N_CELL_BYTES] * 2
    assert state.ram_held_bytes() == 0
    assert state.runtime.context.n_cells_of_0 == 0  # type: ignore[attr-defined]


def test_no_more_than_a_quarter_of_the_budget_is_page_locked_at_load() -> None:
    state = build_state(cast(Runtime, FakeRuntime(Device())), PreemptOptions(ram_mib=8))
    assert [slot.transfer.pinned_bytes for slot in state.slots] == [PROBE_BYTES] * 2


def test_what_turns_out_pageable_at_load_is_given_back_and_left_to_the_parks() -> None:
    state = build(Device(pageable_above_bytes=PROBE_BYTES))
    assert [slot.transfer.pinned_bytes for slot in state.slots] == [0, 0]
    assert all(slot.transfer.frees_on_landing for slot in state.slots)


def test_without_preemption_no_transfer_is_made(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    build_state(cast(Runtime, FakeRuntime(device)), PreemptOptions(ram_mib=0))
    assert banner(caplog) == "preemption: off, --preempt-ram is 0"
    assert device.n_transfers == 0


def test_with_staging_memory_a_park_frees_cells_at_once_where_its_state_fits(caplog: pytest.LogCaptureFixture) -> None:
    device = Device()
    transfer = build(device, staging_mib=2).slot(0).transfer
    assert "2 MiB of staging memory" in banner(caplog)
    assert not transfer.frees_on_landing  # to be expected
    for staging_bytes, frees_on_landing in ((N_STATE_BYTES - 1, True), (N_STATE_BYTES, False)):
        device.staging_bytes = staging_bytes
        transfer.save(0)
        assert transfer.frees_on_landing == frees_on_landing
        transfer.drop()


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def transfer(device: Device) -> AsyncTransfer:
    return AsyncTransfer(FakeContext(), FakeNative(device), KeptBuffers(64 * PROBE_BYTES))


def test_a_restored_state_is_forgotten_when_it_has_landed_and_its_buffer_is_kept(transfer: AsyncTransfer) -> None:
    transfer.save(0)
    assert not transfer.is_done()
    transfer.wait()
    transfer.restore(0)
    assert (transfer.is_done(), transfer.state_bytes) == (False, N_STATE_BYTES)
    transfer.wait()
    assert (transfer.is_done(), transfer.state_bytes) == (True, 0)
    assert transfer.buffer_bytes == transfer.pinned_bytes == N_ROOMY_BYTES


def test_a_restore_that_is_refused_keeps_the_state(transfer: AsyncTransfer) -> None:
    transfer.save(0)
    transfer.wait()
    with pytest.raises(TransferRefusedError, match="sequence 1 could not be restored: no cells"):
        transfer.restore(1)
    assert (transfer.is_done(), transfer.state_bytes) == (True, N_STATE_BYTES)


def test_a_park_without_memory_for_its_buffer_is_refused(transfer: AsyncTransfer, device: Device) -> None:
    device.is_out_of_memory = True
    with pytest.raises(TransferRefusedError, match=f"no memory for a buffer of {N_STATE_BYTES} bytes"):
        transfer.save(0)
    assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes) == (True, 0, 0)


def test_a_dropped_buffer_is_nobodys_at_once_and_stays_page_locked(transfer: AsyncTransfer) -> None:
    transfer.save(0)
    transfer.drop()
    assert (transfer.is_done(), transfer.state_bytes, transfer.buffer_bytes) == (True, 0, 0)
    assert transfer.pinned_bytes == N_ROOMY_BYTES
    transfer.save(0)
    assert transfer.buffer_bytes == transfer.pinned_bytes == N_ROOMY_BYTES


def test_where_more_than_the_state_needs_would_be_pageable_the_buffer_is_as_large_as_the_state(
    device: Device, transfer: AsyncTransfer
) -> None:
    device.pageable_above_bytes = N_STATE_BYTES
    transfer.save(0)
    assert transfer.buffer_bytes == transfer.pinned_bytes == N_STATE_BYTES


def test_a_transfer_that_is_closed_is_not_counted_any_more(device: Device) -> None:
    kept = KeptBuffers(N_STATE_BYTES)
    first, second = (AsyncTransfer(FakeContext(), FakeNative(device), kept) for _ in range(2))
    first.save(0)
    first.close()
    first.close()
    second.save(0)
    assert device.n_transfers == 1


def test_head_room_leaves_what_a_slot_that_fell_back_to_synchronous_copies_holds() -> None:
    device = Device(pageable_above_bytes=PROBE_BYTES)
    state = build_state(cast(Runtime, FakeRuntime(device)), PreemptOptions(ram_mib=9, staging_mib=0))
    first, second = (slot.transfer for slot in state.slots)
    first.save(0)
    assert (first.buffer_bytes, first.pinned_bytes) == (N_STATE_BYTES, 0)
    device.pageable_above_bytes = None
    for _ in range(2):
        second.save(0)
        assert first.buffer_bytes + second.buffer_bytes <= state.ram_limit_bytes
        second.drop()
