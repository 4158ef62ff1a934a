"""What happened in the pool lately, as frozen values: parks, restores and ends, and the gaps between tokens.

A leaf: imports nothing of the server. The engine makes these (`engine.recorder`), the page at `/pool` shows them. Times
are seconds of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EventKind(Enum):
    """What an event tells; the text is what `/pool.json` shows."""

    PARK = "park"
    RESTORE = "restore"
    REFUSAL = "refusal"  # a park that was ordered and could not be made
    END = "end"  # a request that failed or was cancelled, parked or not


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """One thing that happened to one slot.

    number   counts events from 1, so that a reader knows which ones it has seen.
    n_cells  tokens that the slot's sequence had.
    n_bytes  of the state that was copied; 0 where nothing was.
    took_s   how long that took.
    """

    number: int
    at_s: float
    kind: EventKind
    slot_id: int
    task_id: int
    reason: str
    n_cells: int
    n_bytes: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GapSecond:
    """The inter-token gaps that ended within one second of the clock, `second` to `second + 1`."""

    second: int
    n_gaps: int
    worst_s: float
    sum_s: float


@dataclass(frozen=True, slots=True)
class History:
    """The latest events, oldest first, and the latest seconds that had gaps: those that are over, and the last one once
    nobody runs."""

    events: tuple[PoolEvent, ...] = ()
    gap_seconds: tuple[GapSecond, ...] = ()
