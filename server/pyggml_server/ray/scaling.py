"""How many replicas the pools ask for. Pure; Ray's controller calls the policy, each replica measures its own pool."""

from __future__ import annotations

import math
from typing import Any

from pyggml_server.published import Snapshot

PRESSURE = "pressure"


def pressure(snapshot: Snapshot) -> float:
    """What the running requests ask for, as a share of the pool or of the slots, whichever is larger.

    1 is a pool that is just full. Parked chats and the line count as if they were in, so it can be above 1. Prompts
    that idle slots keep do not count: they go when somebody needs their cells.
    """
    counters = snapshot.counters
    running = [slot for slot in snapshot.slots if slot.is_processing]
    n_wanted = sum(slot.n_prompt_tokens for slot in running)
    if running:  # those in line will want what the others do
        n_wanted += counters.requests_deferred * n_wanted // len(running)
    of_cells = n_wanted / counters.kv_cells if counters.kv_cells else 0.0
    of_slots = (len(running) + counters.requests_deferred) / len(snapshot.slots) if snapshot.slots else 0.0
    return max(of_cells, of_slots)


class PoolPressure:
    """Ray's autoscaling policy: as many replicas as bring the mean pressure down to the target."""

    def __init__(self, target: float) -> None:
        """target: above 0."""
        self._target = target

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """The number wanted. Ray applies its limits and delays to it. Without a measurement, what there is."""
        measured = (context.aggregated_metrics or {}).get(PRESSURE, {})
        if not measured:
            return context.target_num_replicas, {}
        # of replicas that have not told theirs yet, the mean of the others
        total = sum(measured.values()) / len(measured) * max(len(measured), context.current_num_replicas)
        return max(1, math.ceil(total / self._target - 1e-9)), {}
