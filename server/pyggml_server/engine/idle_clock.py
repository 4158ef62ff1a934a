"""How long the engine has had nothing to do (--sleep-idle-seconds). Engine thread."""

from __future__ import annotations

from collections.abc import Callable


class IdleClock:
    """Runs while nothing is to be done. A limit below 0 means that it never runs out. Times in seconds."""

    def __init__(self, limit_s: float, clock: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._idle_since_s = clock()

    def note_work(self) -> None:
        """There is something to do: the time begins again."""
        self._idle_since_s = self._clock()

    def left_s(self) -> float | None:
        """How long until it has run out; None if it never does."""
        if self._limit_s < 0:
            return None
        return max(0.0, self._idle_since_s + self._limit_s - self._clock())
