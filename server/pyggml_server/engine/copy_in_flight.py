"""A park or restore that was issued and has not landed: what its landing needs to know. A value; engine thread."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml_server.planner.plan import Reason


@dataclass(frozen=True, slots=True)
class CopyInFlight:
    """Times in the engine's clock (seconds).

    n_cells, n_bytes  size of the state.
    started_s         before the copy was sized and issued; `issued_s` after that: between them decoding stood still.
    frees_on_landing  a park whose cells are the slot's until the copy lands; False where they were freed at issue.
    """

    reason: Reason
    n_cells: int
    n_bytes: int
    started_s: float
    issued_s: float
    frees_on_landing: bool
