"""How large a buffer each slot gets page-locked at load, so that first parks need not stop everybody. Engine thread.

A slot's share of the pool, as far as a quarter of the host memory for parked chats goes: larger ones grow when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyggml_server.native.runtime import BatchArrays, PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime

SHARE_OF_LIMIT = 0.25


def first_buffer_bytes(runtime: Runtime, limit_bytes: int) -> int:
    """For each slot; 0 where the size of a cell could not be found out."""
    per_slot_cells = runtime.n_ctx // runtime.n_slots
    return int(min(per_slot_cells * _cell_bytes(runtime), SHARE_OF_LIMIT * limit_bytes / runtime.n_slots))


def _cell_bytes(runtime: Runtime) -> int:
    """State of one cell, head included: decodes one token in the empty context to see, and removes it."""
    zero = np.zeros(1, dtype=np.int32)
    batch = BatchArrays(token=zero, pos=zero, seq_id=zero, output=np.zeros(1, dtype=np.int8))
    try:
        status, _ = runtime.step(batch, [])
        for context in runtime.contexts():
            context.note_decoded()
        n_bytes = runtime.context.state_size(0) if status == 0 else 0
        for context in runtime.contexts():
            context.seq_remove(0)
    except PyggmlError:
        return 0
    return n_bytes
