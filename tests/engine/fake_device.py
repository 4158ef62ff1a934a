"""A device without memory or a model, and what the engine has of it: transfers, a context, a runtime of two slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pyggml_server.native.border import BufferTooSmallError
from pyggml_server.native.runtime import BatchArrays, PyggmlError, Row, Sample, UnsupportedError

from tests.engine.pinned_pool import FakePinnedPool, FakeRange

MIB = 1024 * 1024
N_STATE_BYTES = 4 * MIB
N_HEAD_BYTES, N_CELL_BYTES = 1000, 8192


class Device:
    """What a device gives: how much it pins, how many transfers live, and what was asked of them."""

    def __init__(self, locks_bytes: int | None = None, obstacle: str | None = None) -> None:
        self.locks_bytes = locks_bytes
        self.obstacle = obstacle
        self.n_transfers = 0
        self.staging_bytes = 0
        self.refuses_saves = False
        self.pools: list[FakePinnedPool] = []

    def new_pool(self, limit_bytes: int, piece_bytes: int) -> FakePinnedPool:
        self.pools.append(FakePinnedPool(limit_bytes, piece_bytes, refused_above_bytes=self.locks_bytes))
        return self.pools[-1]


class FakeNative:
    """The bindings' Transfer over a Device; a copy is in flight until `wait`."""

    def __init__(self, device: Device) -> None:
        self.device = device
        device.n_transfers += 1
        self.part: FakeRange | None = None
        self.n_state_bytes = 0
        self.in_flight = False
        self.closed = False

    @property
    def buffer_bytes(self) -> int:
        return 0 if self.part is None else self.part.n_bytes

    def use(self, part: Any) -> None:
        assert (self.in_flight, self.part) == (False, None)
        self.part = part

    def release_buffer(self) -> None:
        self.wait()
        self.n_state_bytes = 0
        if self.part is not None:
            self.part.give_back()
        self.part = None

    def leave_buffer(self) -> None:
        self.release_buffer()  # nobody fills or reads it

    def shrink_buffer(self) -> None:
        assert self.part is not None
        self.part.shrink(self.n_state_bytes)

    def save(self, seq_id: int, n_bytes: int | None = None, *, may_grow: bool = True) -> int:
        assert seq_id == 0
        assert (n_bytes is None) != may_grow
        if n_bytes is None and self.buffer_bytes < N_STATE_BYTES:
            raise BufferTooSmallError("the buffer is too small", N_STATE_BYTES)
        n_bytes = N_STATE_BYTES if n_bytes is None else n_bytes
        assert n_bytes <= self.buffer_bytes
        if self.device.refuses_saves:
            raise PyggmlError("a shift is pending")
        self.n_state_bytes, self.in_flight = n_bytes, True
        return n_bytes

    @property
    def freed_on_issue(self) -> bool:
        return 0 < self.n_state_bytes <= self.device.staging_bytes

    prefetch_left_bytes = 0

    def prefetch(self, n_bytes: int | None = None) -> bool:
        assert n_bytes is None or n_bytes > 0
        self.in_flight = 0 < self.n_state_bytes <= self.device.staging_bytes
        return self.in_flight

    def restore(self, seq_id: int) -> int:
        if seq_id != 0:
            raise PyggmlError("no cells")
        self.in_flight = True
        return self.n_state_bytes

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        return np.zeros(self.n_state_bytes, dtype=np.uint8)

    def blank(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        assert n_bytes <= self.buffer_bytes
        self.n_state_bytes = n_bytes
        return self.state

    def done(self) -> bool:
        return not self.in_flight

    def wait(self) -> None:
        self.in_flight = False

    def close(self) -> None:
        assert not self.closed
        self.release_buffer()
        self.closed = True
        self.device.n_transfers -= 1


class FakeContext:
    """Every sequence's state has the same size."""

    def __init__(self) -> None:
        self.n_cells_of_0 = 0
        self.n_asked = 0

    def state_size(self, seq_id: int) -> int:
        assert seq_id == 0
        self.n_asked += 1
        return N_HEAD_BYTES + self.n_cells_of_0 * N_CELL_BYTES if self.n_cells_of_0 else N_STATE_BYTES

    def seq_pos_max(self, seq_id: int) -> int | None:
        assert seq_id == 0
        return self.n_cells_of_0 - 1 if self.n_cells_of_0 else None

    def seq_remove(self, seq_id: int) -> None:
        assert seq_id == 0
        self.n_cells_of_0 = 0

    def note_decoded(self) -> None:
        return None

    def save_state(self, seq_id: int, out: Any) -> None:
        assert (seq_id, len(out)) == (0, N_STATE_BYTES)

    def restore_state(self, state: Any, seq_id: int) -> None:
        assert (seq_id, len(state)) == (0, N_STATE_BYTES)


class FakeRuntime:
    """Two slots on a device."""

    n_slots, n_ctx, n_ctx_slot = 2, 512, 512
    has_memory, is_unified, is_recurrent, speculates = True, True, False, False
    has_prompt_cache = False

    def __init__(self, device: Device, n_contexts: int = 1) -> None:
        self.device = device
        self.context = FakeContext()
        self.drafts = [FakeContext() for _ in range(n_contexts - 1)]

    def step(self, batch: BatchArrays, rows: list[Row]) -> tuple[int, list[Sample]]:
        assert (len(batch.token), rows, batch.pos.tolist()) == (1, [], [self.context.n_cells_of_0])
        self.context.n_cells_of_0 += 1
        return 0, []

    def contexts(self) -> list[FakeContext]:
        return [self.context, *self.drafts]

    def new_transfer(self, context: FakeContext) -> FakeNative:
        assert context in self.contexts()
        if self.device.obstacle is not None:
            raise UnsupportedError(self.device.obstacle)
        return FakeNative(self.device)

    def new_pinned_pool(self, limit_bytes: int, piece_bytes: int) -> FakePinnedPool:
        return self.device.new_pool(limit_bytes, piece_bytes)
