"""A timer that is started for every token and set once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pyggml_server.web.lazy_timer import LazyTimer


class HandMovedLoop:
    """An event loop whose clock the test moves. Counts the timers that were set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.n_timers = 0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, call: Callable[[], None]) -> asyncio.Handle:
        return self.call_at(self.now_s + after_s, call)

    def call_at(self, due_s: float, call: Callable[[], None]) -> asyncio.Handle:
        self.n_timers += 1
        timer = (due_s, call)
        self._timers.append(timer)
        return Handle(lambda: self._timers.remove(timer) if timer in self._timers else None)

    def move_to(self, now_s: float) -> None:
        """Let the time pass, and fire what is due on the way."""
        while due := [timer for timer in self._timers if timer[0] <= now_s]:
            timer = min(due, key=lambda one: one[0])
            self._timers.remove(timer)
            self.now_s = timer[0]
            timer[1]()
        self.now_s = now_s


class Handle(asyncio.Handle):
    """What a loop gives for a timer."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        self._cancel()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> HandMovedLoop:
    loop = HandMovedLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


def rung_at(loop: HandMovedLoop, after_s: float) -> tuple[LazyTimer, list[float]]:
    """A timer, and when it rang."""
    times_s: list[float] = []
    return LazyTimer(after_s, lambda: times_s.append(loop.now_s)), times_s


def test_it_rings_once_so_much_time_has_passed_since_the_last_start(loop: HandMovedLoop) -> None:
    timer, times_s = rung_at(loop, 10)
    for now_s in (0, 4, 9, 15):
        loop.move_to(now_s)
        timer.start()
    loop.move_to(24)
    assert times_s == []
    loop.move_to(26)
    assert times_s == [25]


def test_it_rings_again_and_again_until_it_is_paused(loop: HandMovedLoop) -> None:
    timer, times_s = rung_at(loop, 10)
    timer.start()
    loop.move_to(35)
    timer.pause()
    loop.move_to(100)
    assert times_s == [10, 20, 30]


def test_time_before_the_start_does_not_count(loop: HandMovedLoop) -> None:
    timer, times_s = rung_at(loop, 10)
    loop.move_to(8)
    timer.start()
    loop.move_to(17)
    assert times_s == []
    loop.move_to(18)
    assert times_s == [18]


def test_starting_it_for_every_token_sets_no_timer(loop: HandMovedLoop) -> None:
    timer, _ = rung_at(loop, 10)
    for i in range(1000):
        loop.move_to(i / 1000)
        timer.start()
        timer.pause()
    assert loop.n_timers == 1


@pytest.mark.parametrize("after_s", [0, -1])
def test_without_a_time_it_never_rings(loop: HandMovedLoop, after_s: float) -> None:
    timer, times_s = rung_at(loop, after_s)
    timer.start()
    loop.move_to(1e9)
    assert times_s == []
    assert loop.n_timers == 0


def test_a_closed_one_never_rings(loop: HandMovedLoop) -> None:
    timer, times_s = rung_at(loop, 10)
    timer.start()
    timer.close()
    timer.close()
    loop.move_to(100)
    assert times_s == []
