"""A park or restore that was issued: what its completion needs to know. A value; engine thread."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pyggml_server.planner.plan import Reason


class CopyStep(Enum):
    """What is under way.

    PARK      the state leaves the pool.
    QUEUED    the state waits for a batch of others to be handed to the device, or for others' states to leave staging
              memory; the slot has no cells, they are promised to it.
    PREFETCH  the state goes to staging memory; the slot has no cells, they are promised to it.
    RESTORE   the state goes into the slot's cells, and the slot waits for that.
    SCATTER   the state goes from staging memory into the slot's cells, and the slot runs already: what is decoded next
              waits for it on the device.
    """

    PARK = "park"
    QUEUED = "queued"
    PREFETCH = "prefetch"
    RESTORE = "restore"
    SCATTER = "scatter"


@dataclass(frozen=True, slots=True)
class CopyInFlight:
    """Times in the engine's clock (seconds).

    n_cells, n_bytes     size of the state.
    started_s            when the order was taken up, before anything was sized or issued; of a SCATTER, before the slot
                         got its cells.
    issue_s              from the order to the last posted call, in which decoding stood still.
    frees_on_completion  a park whose cells are the slot's until the copy completes; False where issuing freed them.
    prefetch_s           of a restore by way of staging memory: until its state was found there.
    """

    step: CopyStep
    reason: Reason
    n_cells: int
    n_bytes: int
    started_s: float
    issue_s: float
    frees_on_completion: bool = False
    prefetch_s: float = 0.0

    def in_words(self, took_s: float) -> str:
        """For the log, once it has taken so long in all."""
        gb_s = self.n_bytes / took_s / 1e9 if took_s > 0 else 0.0
        return (
            f"({self.reason.value}): {self.n_cells} cells, {self.n_bytes / 1024**2:.2f} MiB, issued in "
            f"{self.issue_s * 1e3:.2f} ms, completed after {took_s * 1e3:.2f} ms, {gb_s:.2f} GB/s"
            + (f", in staging memory after {self.prefetch_s * 1e3:.2f} ms" if self.prefetch_s else "")
        )
