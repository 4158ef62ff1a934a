"""Keeps the latest events and gaps for the page at `/pool`. Engine thread writes; what `history` gives is frozen.

It must cost the engine next to nothing. A pass without an event publishes the very object of the pass before, a token
adds to three numbers, and once a second and once per event the half that has changed is built again.
"""

from __future__ import annotations

from collections import deque

from pyggml_server.history import EventKind, GapSecond, History, PoolEvent

N_EVENTS_KEPT = 128
N_SECONDS_KEPT = 120


class Recorder:
    """The latest events and gaps of one engine."""

    def __init__(self) -> None:
        self.history = History()
        self._events: deque[PoolEvent] = deque(maxlen=N_EVENTS_KEPT)
        self._seconds: deque[GapSecond] = deque(maxlen=N_SECONDS_KEPT)
        self._n_events = 0
        self._second = 0
        self._n_gaps = 0
        self._worst_s = 0.0
        self._sum_s = 0.0

    def note(
        self,
        kind: EventKind,
        slot_id: int,
        task_id: int,
        at_s: float,
        reason: str,
        *,
        n_cells: int,
        n_bytes: int = 0,
        took_s: float = 0.0,
    ) -> None:
        """Something happened to a task in its slot."""
        self._n_events += 1
        event = PoolEvent(self._n_events, at_s, kind, slot_id, task_id, reason, n_cells, n_bytes, took_s)
        self._events.append(event)
        self.history = History(tuple(self._events), self.history.gap_seconds)

    def count_gap(self, now_s: float, gap_s: float) -> None:
        """A gap between two tokens of a slot that kept running ended now."""
        second = int(now_s)
        if second != self._second:
            self._end_second(second)
        self._n_gaps += 1
        self._sum_s += gap_s
        if gap_s > self._worst_s:
            self._worst_s = gap_s

    def rest(self) -> None:
        """No slot runs: publish the second so far, since no token will come to end it."""
        if self._n_gaps:
            self.history = History(self.history.events, (*self._seconds, self._gap_second()))

    def _gap_second(self) -> GapSecond:
        return GapSecond(self._second, self._n_gaps, self._worst_s, self._sum_s)

    def _end_second(self, second: int) -> None:
        if self._n_gaps:
            self._seconds.append(self._gap_second())
            self.history = History(self.history.events, tuple(self._seconds))
        self._second = second
        self._n_gaps = 0
        self._worst_s = self._sum_s = 0.0
