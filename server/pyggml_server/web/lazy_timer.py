"""Notices that something takes too long, where it is asked for every token. Event loop thread.

A start costs one look at the clock: the timer is not moved, and looks when it fires whether it is time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LazyTimer:
    """Calls `ring` each time `after_s` have passed since `start`, until `pause`. Never, if `after_s` is not above 0."""

    def __init__(self, after_s: float, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._after_s = after_s
        self._ring = ring
        self._started_at_s: float | None = None
        self._handle = self._loop.call_later(after_s, self._look) if after_s > 0 else None

    def start(self) -> None:
        """It begins now, also where it had begun before."""
        self._started_at_s = self._loop.time()

    def pause(self) -> None:
        """It has ended in time, or is not asked for."""
        self._started_at_s = None

    def close(self) -> None:
        """Never call `ring` again. Idempotent."""
        if self._handle is not None:
            self._handle.cancel()

    def _look(self) -> None:
        now_s = self._loop.time()
        due_s = now_s + self._after_s if self._started_at_s is None else self._started_at_s + self._after_s
        is_due = due_s <= now_s
        if is_due:
            self._started_at_s, due_s = now_s, now_s + self._after_s
        self._handle = self._loop.call_at(due_s, self._look)
        if is_due:
            self._ring()  # may close the timer
