"""The engine frees its model when nothing is to be done, and loads it again with its counters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyggml_server.engine import loop
from pyggml_server.engine.idle_clock import IdleClock
from pyggml_server.engine.loop import Engine
from pyggml_server.engine.sleep_guard import SleepGuard
from pyggml_server.errors import NotLoadedError
from pyggml_server.messages import Cancelled, Wake

from tests.engine.harness import TIMEOUT_S, EngineHarness


@pytest.fixture
def engine(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHarness]:
    """An engine that falls asleep as soon as it may. llama.cpp's parser wants one second at least."""
    monkeypatch.setattr(loop, "IdleClock", lambda _limit_s, clock: IdleClock(0.0, clock))
    with EngineHarness(["-m", str(smollm2_path), "-c", "256", "-np", "2", "--kv-unified", "-t", "1"]) as harness:
        yield harness


@pytest.fixture
def is_asleep(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the engine has freed its model."""
    slept, wait_for_wake = threading.Event(), Engine._wait_for_wake

    def note_and_wait(engine: Engine) -> bool:
        slept.set()
        return wait_for_wake(engine)

    monkeypatch.setattr(Engine, "_wait_for_wake", note_and_wait)
    return slept


def test_it_falls_asleep_once_it_is_let_and_wakes_with_what_it_counted(
    engine: EngineHarness, is_asleep: threading.Event
) -> None:
    first = engine.run(prompt="Once upon a time", n_predict=4, temperature=0)
    text = first.text()
    engine.engine.open_door()
    assert is_asleep.wait(TIMEOUT_S)
    asleep = engine.engine.snapshot().asleep
    assert asleep is not None
    assert b'"is_sleeping":true' in asleep.props
    with pytest.raises(NotLoadedError):
        engine.translator.props()
    engine.engine.submit(Wake())
    engine.wait_until_awake()
    again = engine.run(prompt="Once upon a time", n_predict=4, temperature=0)
    assert again.text() == text
    assert engine.engine.snapshot().counters.requests_finished_total == 2


def test_a_cancel_is_told_before_it_falls_asleep(engine: EngineHarness, is_asleep: threading.Event) -> None:
    running = engine.start(prompt="Once upon a time", n_predict=200, stream=True, ignore_eos=True)
    engine.wait_for_tokens(running, 2)
    engine.engine.open_door()
    engine.cancel(running)
    assert is_asleep.wait(TIMEOUT_S)
    assert isinstance(running.last(), Cancelled)


def test_it_can_be_ended_in_its_sleep(engine: EngineHarness, is_asleep: threading.Event) -> None:
    engine.engine.open_door()
    assert is_asleep.wait(TIMEOUT_S)
    engine.engine.stop()
    assert engine.engine.join(60)


def test_the_door_stays_open_while_somebody_is_inside() -> None:
    guard = SleepGuard()
    assert not guard.try_enter(), "there is no model yet"
    assert not guard.try_close()
    guard.open()
    assert guard.try_enter()
    assert not guard.try_close()
    guard.leave()
    assert guard.try_close()
    assert not guard.try_enter()


def test_the_idle_clock_begins_again_with_work() -> None:
    now_s = 0.0
    clock = IdleClock(5, lambda: now_s)
    now_s = 3.0
    assert clock.left_s() == 2.0
    clock.note_work()
    now_s = 7.0
    assert clock.left_s() == 1.0
    now_s = 100.0
    assert clock.left_s() == 0.0
    assert IdleClock(-1, lambda: now_s).left_s() is None
