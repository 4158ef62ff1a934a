"""The engine falls asleep: whatever is in flight then has ended before its context is freed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyggml_server.engine import loop
from pyggml_server.engine.idle_clock import IdleClock
from pyggml_server.engine.lifecycle import endings
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.loop import Engine
from pyggml_server.messages import Cancelled, Wake

from tests.engine.harness import TIMEOUT_S, EngineHarness
from tests.native.engine_on_simdev.background_copies import HeldCopies
from tests.native.engine_on_simdev.chats import chat, engine
from tests.native.engine_on_simdev.parks import HeldParks
from tests.native.simdev_library import SimdevLibrary


class AtSleep:
    """Notes the operations that are pending before and after the transfers are given up; `issues_save`: one of an idle
    slot is in flight then."""

    def __init__(self, simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_pending: list[tuple[int, int]] = []
        self.issues_save = False
        self.is_closing = threading.Event()
        self.is_asleep = threading.Event()
        self._simdev = simdev
        close, wait_for_wake = endings.close_transfers, Engine._wait_for_wake

        def watched_close(state: EngineState) -> None:
            if self.issues_save:
                simdev.set("hold", 1)
                state.slots[0].transfer.save(0)  # as a prompt of an idle slot that is saved for later would be
                simdev.set("hold", 0)
            before = simdev.n_pending
            self.is_closing.set()
            close(state)
            self.n_pending.append((before, simdev.n_pending))

        def noted_wait(engine: Engine) -> bool:
            self.is_asleep.set()
            return wait_for_wake(engine)

        monkeypatch.setattr(endings, "close_transfers", watched_close)
        monkeypatch.setattr(Engine, "_wait_for_wake", noted_wait)
        monkeypatch.setattr(loop, "IdleClock", lambda _limit_s, clock: IdleClock(0.0, clock))  # as soon as it may


@pytest.fixture
def at_sleep(simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> AtSleep:
    return AtSleep(simdev, monkeypatch)


def wake(harness: EngineHarness) -> None:
    harness.engine.submit(Wake())
    harness.wait_until_awake()


def test_sleep_with_a_copy_in_flight_waits_for_it_and_the_next_context_inherits_nothing(
    model: Path, simdev: SimdevLibrary, at_sleep: AtSleep
) -> None:
    at_sleep.issues_save = True
    simdev.clear_trace()
    with engine(model, n_slots=2, ram_mib=16) as harness:
        text = harness.run(**chat(0, 20, id_slot=0)).text()
        harness.engine.open_door()
        assert at_sleep.is_closing.wait(TIMEOUT_S)
        simdev.release()
        assert at_sleep.is_asleep.wait(TIMEOUT_S)
        ((before, after),) = at_sleep.n_pending
        # What may be left is the fence behind the last graph: nobody waits for that one.
        assert after < before
        assert simdev.n_held == 0
        kinds = simdev.trace_kinds()
        assert kinds["pin"] == kinds["unpin"] > 0
        at_sleep.issues_save = False
        wake(harness)
        counters = harness.engine.snapshot().counters
        assert (counters.preempt_ram_bytes, counters.pinned_pool_bytes > 0) == (0, True)
        assert harness.run(**chat(0, 20, id_slot=0)).text() == text


def test_sleep_after_a_cancel_with_a_park_in_flight_finds_no_copy(
    model: Path, held_parks: HeldParks, at_sleep: AtSleep
) -> None:
    held_parks.slot_ids = {0}
    with engine(model, n_slots=2, every_n_tokens=10) as harness:
        running = harness.start(**chat(0, 200, stream=True, id_slot=0))
        harness.wait_for_notice(running, "preempted")
        harness.engine.open_door()
        harness.cancel(running)
        held_parks.release()
        assert at_sleep.is_asleep.wait(TIMEOUT_S)
        assert isinstance(running.last(), Cancelled)
        assert at_sleep.n_pending == [(0, 0)]
    assert held_parks.n_held == 1


def test_no_sleep_while_the_prompt_of_an_idle_slot_is_saved(
    model: Path, simdev: SimdevLibrary, at_sleep: AtSleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldCopies(simdev, monkeypatch)
    with engine(model, n_slots=2) as harness:
        harness.run(**chat(0, 4, n_prompt=40, cache_prompt=True, id_slot=0))
        held.hold("save")
        running = harness.start(**chat(1, 50, id_slot=1))
        held.wait_for_one()
        harness.engine.open_door()
        harness.wait(running)
        held.release()
        assert at_sleep.is_asleep.wait(TIMEOUT_S)
        assert at_sleep.n_pending == [(0, 0)]
