"""Which kind of transfer the slots of this model load get, and why: in the words of the banner. Engine thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyggml_server.engine.transfers.async_transfer import AsyncTransfer
from pyggml_server.engine.transfers.draft_transfer import as_one
from pyggml_server.engine.transfers.host_memory_budget import MIB
from pyggml_server.engine.transfers.pageable_fallback import FallbackTransfer
from pyggml_server.engine.transfers.park_memory import ParkMemory, piece_bytes
from pyggml_server.engine.transfers.size_estimate import SizeEstimate, measure
from pyggml_server.engine.transfers.transfer import SyncTransfer, Transfer
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Context, Runtime


@dataclass(frozen=True, slots=True)
class TransferChoice:
    """`make` gives the transfer of a slot, `banner` says how states will be copied.

    memory, sizes  what asynchronous ones take their buffers from, and how large states are: empty for the others.
    obstacle       why asynchronous ones cannot be had; None where they can, or where they were not asked for.
    """

    make: Callable[[int], Transfer]
    banner: str
    memory: ParkMemory = field(default_factory=ParkMemory)
    sizes: SizeEstimate = field(default_factory=SizeEstimate)
    obstacle: str | None = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether the device can copy while others decode, and pinned memory came."""
        return self.memory.pinned_bytes > 0


def choose_transfers(runtime: Runtime, use_async: bool, ram_limit_bytes: int, staging_mib: int) -> TransferChoice:
    """Asynchronous transfers if the user wants them and the device can; says once where it cannot.

    Their buffers together take `ram_limit_bytes` at most. `staging_mib` is what the model was loaded with. Blocks to
    pin the first of the memory.
    """
    if not use_async:
        return _synchronous(runtime, "--no-preempt-async")
    try:
        for context in runtime.contexts():
            runtime.new_transfer(context).close()  # to see
        sizes = measure(runtime)
        memory = _locked_memory(runtime, sizes, ram_limit_bytes)
    except (PyggmlError, MemoryError) as error:
        return _synchronous(runtime, str(error))
    if memory is None:
        return _synchronous(runtime, "there is no pinned memory")
    make = partial(_asynchronous, runtime, memory, sizes, staging_mib > 0)
    staging = f"{staging_mib} MiB of staging memory" if staging_mib > 0 else "no staging memory"
    locked = f"pinned memory offered ({memory.pinned_bytes / MIB:.1f} MiB locked)"
    return TransferChoice(make, f"asynchronous copies, {locked}, {staging}", memory, sizes)


def synchronous_transfers(runtime: Runtime) -> Callable[[int], Transfer]:
    """Makes each slot's transfer where no copy may outlast its call."""
    return lambda _slot_id: as_one([SyncTransfer(context) for context in runtime.contexts()])


def _locked_memory(runtime: Runtime, sizes: SizeEstimate, limit_bytes: int) -> ParkMemory | None:
    """A pool that is locked as far as it should be at load; None where not even its first piece can be locked."""
    pool = runtime.new_pinned_pool(limit_bytes, piece_bytes(limit_bytes))
    n_pieces = max(1, sizes.first_bytes(runtime, limit_bytes) // pool.piece_bytes)
    if pool.fill(n_pieces * pool.piece_bytes) == 0:
        pool.close()
        return None
    return ParkMemory(pool)


def _synchronous(runtime: Runtime, why: str) -> TransferChoice:
    banner = f"synchronous copies to pageable memory ({why})"
    return TransferChoice(synchronous_transfers(runtime), banner, obstacle=why)


def _asynchronous(runtime: Runtime, memory: ParkMemory, sizes: SizeEstimate, is_staged: bool, slot_id: int) -> Transfer:
    def of(context: Context) -> Transfer:
        estimate = sizes if context is runtime.context else SizeEstimate()  # which has nothing of a draft's
        transfer = AsyncTransfer(context, runtime.new_transfer(context), memory, estimate, is_staged=is_staged)
        return FallbackTransfer(slot_id, transfer, partial(_pageable, context, memory))

    return as_one([of(context) for context in runtime.contexts()])


def _pageable(context: Context, memory: ParkMemory) -> Transfer:
    """The synchronous transfer of a slot that also has an asynchronous one: the pool leaves room for its states."""
    transfer = SyncTransfer(context)
    memory.add_pageable(transfer)
    return transfer
