"""Whether prompts are copied beside the decoding, and through how much memory. Engine thread, at load.

This memory has a limit of its own: it is not part of `--preempt-ram`, as the prompt cache itself is not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyggml_server.engine.bounce import Bounce
from pyggml_server.engine.host_memory import MIB
from pyggml_server.engine.park_memory import piece_bytes
from pyggml_server.engine.side_copies import SideCopies
from pyggml_server.engine.size_estimate import SizeEstimate
from pyggml_server.native.border import PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import PinnedPool, Runtime

log = logging.getLogger(__name__)

# In each direction, for each context. What is larger is copied synchronously.
MOST_BYTES = 128 * MIB


def side_copies(runtime: Runtime, sizes: SizeEstimate) -> SideCopies | None:
    """The memory for them, page-locked; None where there is no prompt cache, or where such memory does not come.

    It holds what one slot may hold, as far as the limit goes. Blocks to page-lock it.
    """
    if not runtime.has_prompt_cache:
        return None
    n_bytes = max(1, min(sizes.of(runtime.n_ctx_slot), MOST_BYTES))
    n_ranges = 2 * len(runtime.contexts())
    try:
        piece = piece_bytes(n_ranges * n_bytes)
        range_bytes = -(-n_bytes // piece) * piece
        memory = runtime.new_pinned_pool(n_ranges * range_bytes, piece)
    except (PyggmlError, MemoryError) as error:
        log.warning("prompt cache: synchronous copies (%s)", error)
        return None
    if memory.fill(memory.limit_bytes) < memory.limit_bytes:
        memory.close()
        log.warning("prompt cache: synchronous copies (there is no page-locked memory)")
        return None
    log.info(
        "prompt cache: copied beside the decoding, through %.1f MiB of page-locked memory", memory.pinned_bytes / MIB
    )
    return SideCopies(_bounce(runtime, memory, range_bytes), _bounce(runtime, memory, range_bytes), memory)


def _bounce(runtime: Runtime, memory: PinnedPool, n_bytes: int) -> Bounce:
    contexts = runtime.contexts()
    transfers = [runtime.new_transfer(context) for context in contexts]
    for transfer in transfers:
        part = memory.take(n_bytes)
        assert part is not None, "the pool was made for these ranges"
        transfer.use(part)
    return Bounce(contexts, transfers)
