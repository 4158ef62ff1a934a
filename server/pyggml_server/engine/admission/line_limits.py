"""How long the line in front of the slots may get, and how long one may wait. Engine thread; decides, does nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pyggml_server.engine.slots.slot import Job

MOST_RETRY_S = 60


def one_too_many(line: Iterable[Job], n_idle: int, max_queue: int | None) -> Job | None:
    """Who has to leave for the line to be within its limit: of the lowest class the latest, or None.

    `line` is in the order in which it gets slots. Those for whom a slot is idle do not count as waiting.
    """
    if max_queue is None:
        return None
    waiting: list[Job] = []
    for job in line:
        n_slots = 1 + job.task.n_children
        if n_slots <= n_idle:
            n_idle -= n_slots
        else:
            waiting.append(job)
    if len(waiting) <= max_queue:
        return None
    return max(waiting, key=lambda job: (job.priority, job.order))


def has_waited_too_long(job: Job, now_s: float, max_queue_s: float) -> bool:
    """Whether the job, which has not begun, came more than `max_queue_s` ago; 0 is no limit."""
    return 0 < max_queue_s < now_s - job.arrived_at_s


def retry_after_s(longest_wait_s: float) -> int:
    """What a refused client is told: as long as the one who waits longest has waited, within a minute."""
    return min(max(1, math.ceil(longest_wait_s)), MOST_RETRY_S)
