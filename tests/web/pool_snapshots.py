"""Pools to look at: snapshots as the engine publishes them."""

from __future__ import annotations

import math
import time

from pyggml_server.history import EventKind, GapSecond, History, PoolEvent
from pyggml_server.published import Counters, SlotSnapshot, Snapshot

MIB = 1024**2


def busy_pool(now_s: float | None = None, reason: str = "no room for the next step") -> Snapshot:
    """1024 cells: slot 0 runs with 512, slot 1 keeps 128, slots 2 and 3 are parked, 3 for longer."""
    now_s = time.monotonic() if now_s is None else now_s
    slots = (
        SlotSnapshot(0, 1024, True, id_task=10, n_prompt_tokens=512, n_decoded=40, state="generating", n_cells=512),
        SlotSnapshot(1, 1024, False, id_task=9, n_prompt_tokens=128, n_cells=128),
        parked(2, n_tokens=100, n_bytes=2 * MIB, parked_at_s=now_s - 2),
        parked(3, n_tokens=300, n_bytes=6 * MIB, parked_at_s=now_s - 9),
    )
    events = (
        PoolEvent(1, now_s - 9, EventKind.PARK, 3, 13, reason, 300, 6 * MIB, 0.002),
        PoolEvent(2, now_s - 7, EventKind.PARK, 2, 12, reason, 90, 2 * MIB, 0.001),
        PoolEvent(3, now_s - 5, EventKind.RESTORE, 2, 12, "head of the line", 90, 2 * MIB, 0.001),
        PoolEvent(4, now_s - 4, EventKind.END, 1, 9, "cancelled", 128),
        PoolEvent(5, now_s - 2, EventKind.PARK, 2, 12, reason, 100, 2 * MIB, 0.001),
    )
    second = math.floor(now_s)
    gaps = (GapSecond(second - 12, 20, 0.08, 1.0), *(GapSecond(math.floor(e.at_s), 20, 0.05, 0.9) for e in events[:1]))
    counters = Counters(
        kv_cells=1024,
        kv_cells_used=640,
        preempt_ram_bytes=8 * MIB,
        preempt_ram_limit_bytes=64 * MIB,
        preemptions_total=3,
        restores_total=1,
        requests_cancelled_total=1,
    )
    return Snapshot(slots, counters, history=History(events, gaps))


def parked(slot_id: int, n_tokens: int, n_bytes: int, parked_at_s: float) -> SlotSnapshot:
    """A slot in the line for its restore."""
    return SlotSnapshot(
        slot_id,
        1024,
        True,
        id_task=slot_id + 10,
        n_prompt_tokens=n_tokens,
        state="preempted",
        is_preempted=True,
        parked_bytes=n_bytes,
        parked_ms=500.0,
        n_preempted=2,
        parked_at_s=parked_at_s,
    )
