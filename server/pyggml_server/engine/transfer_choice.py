"""Which kind of transfer the slots of this model load get, and why: in the words of the banner. Engine thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyggml_server.engine.async_transfer import AsyncTransfer
from pyggml_server.engine.draft_transfer import as_one
from pyggml_server.engine.first_buffers import first_buffer_bytes
from pyggml_server.engine.host_memory import MIB
from pyggml_server.engine.kept_buffers import HeldElsewhere, KeptBuffers
from pyggml_server.engine.pageable_fallback import FallbackTransfer
from pyggml_server.engine.transfer import SyncTransfer, Transfer
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Context, Runtime

log = logging.getLogger(__name__)

PROBE_BYTES = MIB


@dataclass(frozen=True, slots=True)
class TransferChoice:
    """`make` gives the transfer of a slot, `banner` says how states will be copied."""

    make: Callable[[int], Transfer]
    banner: str


def choose_transfers(runtime: Runtime, use_async: bool, ram_limit_bytes: int, staging_mib: int) -> TransferChoice:
    """Asynchronous transfers if the user wants them and the device can; says once where it cannot.

    Their buffers together take `ram_limit_bytes` at most. `staging_mib` is what the model was loaded with.
    """
    if not use_async:
        return _synchronous(runtime, "--no-preempt-async")
    try:
        why_not = _why_not_asynchronous(runtime)
    except (PyggmlError, MemoryError) as error:
        why_not = str(error)
    if why_not is not None:
        return _synchronous(runtime, why_not)
    first_bytes = first_buffer_bytes(runtime, ram_limit_bytes)
    make = partial(_asynchronous, runtime, KeptBuffers(ram_limit_bytes), first_bytes, staging_mib > 0)
    staging = f"{staging_mib} MiB of staging memory" if staging_mib > 0 else "no staging memory"
    return TransferChoice(make, f"asynchronous copies, page-locked memory offered, {staging}")


def synchronous_transfers(runtime: Runtime) -> Callable[[int], Transfer]:
    """Makes each slot's transfer where no copy may outlast its call."""
    return lambda _slot_id: as_one([SyncTransfer(context) for context in runtime.contexts()])


def _why_not_asynchronous(runtime: Runtime) -> str | None:
    """Makes a transfer to see; what it cost is given back. A device may offer page-locked memory and not give it."""
    reasons = (_why_not_in(runtime, context) for context in runtime.contexts())
    return next((why for why in reasons if why is not None), None)


def _why_not_in(runtime: Runtime, context: Context) -> str | None:
    probe = runtime.new_transfer(context)
    try:
        probe.reserve(PROBE_BYTES)
        if not probe.is_pinned:
            log.warning("asynchronous copies are off: page-locked memory was asked for, pageable memory came")
            return "there is no page-locked memory"
    finally:
        probe.close()
    return None


def _synchronous(runtime: Runtime, why: str) -> TransferChoice:
    return TransferChoice(synchronous_transfers(runtime), f"synchronous copies to pageable memory ({why})")


def _asynchronous(runtime: Runtime, kept: KeptBuffers, first_bytes: int, is_staged: bool, slot_id: int) -> Transfer:
    return as_one(
        [_with_fallback(runtime, context, kept, first_bytes, is_staged, slot_id) for context in runtime.contexts()]
    )


def _with_fallback(
    runtime: Runtime, context: Context, kept: KeptBuffers, first_bytes: int, is_staged: bool, slot_id: int
) -> Transfer:
    transfer = AsyncTransfer(context, runtime.new_transfer(context), kept, is_staged=is_staged)
    transfer.keep_ready(first_bytes if context is runtime.context else 0)  # a draft's is made when it is needed
    return FallbackTransfer(slot_id, transfer, partial(_counted, context, kept))


def _counted(context: Context, kept: KeptBuffers) -> Transfer:
    """The synchronous transfer of a slot beside asynchronous ones: their buffers leave room for its states."""
    transfer = SyncTransfer(context)
    kept.add(HeldElsewhere(transfer))
    return transfer
