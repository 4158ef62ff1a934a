"""Whether cached prompts and slots' files are copied while others decode, and through how much memory.

Engine thread, at load. This memory has a limit of its own: it is not part of `--preempt-ram`, as the prompt cache
itself is not. It is there with preemption switched off too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.transfers.choice import TransferChoice
from pyggml_server.engine.transfers.host_memory_budget import MIB, default_ram_limit_bytes
from pyggml_server.engine.transfers.park_memory import piece_bytes
from pyggml_server.engine.transfers.size_estimate import measure
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import PinnedPool, Runtime

log = logging.getLogger(__name__)

# In each direction: what is pinned at load at most, and what may be later at least. A state that is larger than
# all that may be is copied synchronously.
FIRST_BYTES = 128 * MIB
# The part of the default of `--preempt-ram` that may be pinned in each direction.
SHARE = 0.25


def start_background_runner(
    runtime: Runtime, choice: TransferChoice, *, use_async: bool, has_slot_files: bool
) -> BackgroundRunner | None:
    """The memory for them; None where there is nothing to copy, or where it cannot be copied while others decode.

    `choice`: how chats are parked. Says in one line what is done. Blocks to pin what is locked at load.
    """
    if not runtime.has_memory or not (runtime.has_prompt_cache or has_slot_files):
        return None
    what = "prompt cache" if runtime.has_prompt_cache else "slot files"
    obstacle = choice.obstacle if use_async else "--no-preempt-async"
    if obstacle is not None:
        log.info("%s: synchronous copies (%s)", what, obstacle)
        return None
    try:
        memories = _memories(runtime, choice)
    except (PyggmlError, MemoryError) as error:
        log.info("%s: synchronous copies (%s)", what, error)
        return None
    if not memories:
        log.warning("%s: synchronous copies (there is no pinned memory)", what)
        return None
    n_now, n_most = (sum(memory.pinned_bytes for memory in memories), sum(memory.limit_bytes for memory in memories))
    log.info(
        "%s: asynchronous copies through %.1f MiB of pinned memory, up to %.1f MiB when needed",
        what,
        n_now / MIB,
        n_most / MIB,
    )
    # where chats are parked while others decode the contexts have transfers anyway
    out, into = (
        BounceBuffer(runtime.contexts(), runtime.new_transfer, memory, is_lasting=choice.is_asynchronous)
        for memory in memories
    )
    return BackgroundRunner(out, into)


def most_bytes(slot_bytes: int) -> int:
    """What may be pinned in one direction: what one slot may hold, within a share of the host's memory."""
    return max(1, min(slot_bytes, max(FIRST_BYTES, int(SHARE * default_ram_limit_bytes()))))


def _memories(runtime: Runtime, choice: TransferChoice) -> list[PinnedPool]:
    """One for each direction, pinned as far as it should be at load; none where no such memory comes. Raises
    PyggmlError, MemoryError."""
    if not choice.is_asynchronous:
        for context in runtime.contexts():
            runtime.new_transfer(context).close()  # to see
    sizes = choice.sizes if choice.is_asynchronous else measure(runtime)
    n_bytes = most_bytes(sizes.of(runtime.n_ctx_slot) * len(runtime.contexts()))
    piece = piece_bytes(n_bytes)
    made: list[PinnedPool] = []
    for _ in range(2):
        memory = runtime.new_pinned_pool(-(-n_bytes // piece) * piece, piece)
        made.append(memory)
        if memory.fill(min(memory.limit_bytes, FIRST_BYTES)) == 0:
            break
    else:
        return made
    for memory in made:
        memory.close()
    return []
