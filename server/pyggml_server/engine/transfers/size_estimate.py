"""How large states are, by their cells: enough to have memory ready for a park before it is ordered. Engine thread.

An estimate: what a park takes is asked for when it is made. States that were parked correct it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyggml_server.native.runtime import BatchArrays, PyggmlError

if TYPE_CHECKING:
    from pyggml_server.native.runtime import Runtime

# The part of the limit that is pinned at load at most.
FIRST_SHARE = 0.25


@dataclass(slots=True)
class SizeEstimate:
    """Bytes of a state without cells (a recurrent part among them), and of each cell."""

    head_bytes: int = 0
    cell_bytes: float = 0.0

    def of(self, n_cells: int, n_states: int = 1) -> int:
        """Of so many states with so many cells together."""
        return math.ceil(n_states * self.head_bytes + n_cells * self.cell_bytes)

    def learn(self, n_cells: int, n_bytes: int) -> None:
        """A state of so many cells had this size."""
        self.cell_bytes = max(self.cell_bytes, (n_bytes - self.head_bytes) / max(1, n_cells))

    def first_bytes(self, runtime: Runtime, limit_bytes: int) -> int:
        """What is pinned at load: for the states of the whole pool, within a quarter of the limit."""
        return min(self.of(runtime.n_ctx, runtime.n_slots), int(FIRST_SHARE * limit_bytes))


def measure(runtime: Runtime) -> SizeEstimate:
    """Decodes two tokens in the empty target context to see, and removes them. Zeros where that does not work."""
    sizes: list[int] = []
    try:
        for i in range(2):
            at, zero = np.full(1, i, dtype=np.int32), np.zeros(1, dtype=np.int32)
            batch = BatchArrays(token=zero, pos=at, seq_id=zero, output=np.zeros(1, dtype=np.int8))
            status, _ = runtime.step(batch, [])
            for context in runtime.contexts():
                context.note_decoded()
            if status == 0:
                sizes.append(runtime.context.state_size(0))
        for context in runtime.contexts():
            context.seq_remove(0)
    except PyggmlError:
        return SizeEstimate()
    if len(sizes) < 2:
        return SizeEstimate()
    first, second = sizes
    return SizeEstimate(max(0, 2 * first - second), second - first)
