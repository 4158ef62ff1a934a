"""A line that is full, or in which one waits too long, on a real model."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyggml_server.config import PreemptOptions, ServeOptions, StepOptions
from pyggml_server.engine.lifecycle.engine_state import EngineState
from pyggml_server.engine.startup import build_state
from pyggml_server.messages import Cancelled, EndReasoning, Failed

from tests.engine.harness import EngineHarness, Running
from tests.engine.invariants import watched

BUSY = {"prompt": [100] * 20, "n_predict": -1, "ignore_eos": True, "stream": True, "n_keep": -1}
SHORT = {"prompt": [200] * 5, "n_predict": 3, "ignore_eos": True}


def engine(model: Path, serve: ServeOptions, n_slots: int = 1, *, runs_ahead: bool = False) -> EngineHarness:
    argv = ["-m", str(model), "-c", "256", "-np", str(n_slots), "-fa", "on", "-t", "1", "--kv-unified"]
    return EngineHarness(
        [*argv, "--context-shift"], PreemptOptions(rotate_s=0), StepOptions(runs_ahead=runs_ahead), serve
    )


def refusal(running: Running, i: int = 0) -> str:
    last = running.last(i)
    assert isinstance(last, Failed), last
    error = json.loads(last.error)
    assert (last.status, error["code"], error["type"]) == (503, 503, "unavailable_error")
    assert last.retry_after_s is not None
    assert last.retry_after_s >= 1
    return str(error["message"])


@pytest.fixture(autouse=True)
def _watch(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> object:
    with watched(monkeypatch, caplog):
        yield


def test_one_request_more_than_may_wait_is_refused_and_the_others_are_served(smollm2_path: Path) -> None:
    with engine(smollm2_path, ServeOptions(max_queue=2)) as harness:
        busy = harness.start(**BUSY)
        harness.wait_for_tokens(busy, 1)
        waiting = [harness.start(**SHORT) for _ in range(2)]
        refused = harness.run(**SHORT)
        assert "2 requests are already waiting" in refusal(refused)
        harness.cancel(busy)
        harness.wait(busy, *waiting)
        assert harness.run(**SHORT).result()["tokens_predicted"] == 3
        counters = harness.engine.snapshot().counters
    assert [running.result()["tokens_predicted"] for running in waiting] == [3, 3]
    assert counters.requests_refused_total == counters.requests_failed_total == 1


def test_a_request_of_a_better_class_takes_the_place_of_one_of_a_lower_class_in_line(smollm2_path: Path) -> None:
    with engine(smollm2_path, ServeOptions(max_queue=1)) as harness:
        busy = harness.start(**BUSY)
        harness.wait_for_tokens(busy, 1)
        batch = harness.start(**SHORT, priority=1)
        urgent = harness.start(**SHORT)
        harness.wait(batch)
        harness.cancel(busy)
        harness.wait(busy, urgent)
    refusal(batch)
    assert urgent.result()["tokens_predicted"] == 3


def test_all_answers_of_a_refused_request_are_refused(smollm2_path: Path) -> None:
    with engine(smollm2_path, ServeOptions(max_queue=0), n_slots=3) as harness:
        busy = harness.start(**BUSY)
        harness.wait_for_tokens(busy, 1)
        refused = harness.run(**SHORT, n=3)
        fits = harness.run(**SHORT, n=2)
        harness.cancel(busy)
        harness.wait(busy)
    assert {refusal(refused, i) for i in range(3)} == {
        "the server is busy: 0 requests are already waiting (--max-queue)"
    }
    assert [fits.result(i)["tokens_predicted"] for i in range(2)] == [3, 3]


def test_those_who_have_left_do_not_count(smollm2_path: Path) -> None:
    with engine(smollm2_path, ServeOptions(max_queue=1)) as harness:
        busy = harness.start(**BUSY)
        harness.wait_for_tokens(busy, 1)
        n_prompt_tokens = harness.engine.snapshot().counters.prompt_tokens_total
        for _ in range(100):
            leaver = harness.start(**SHORT)
            harness.cancel(leaver)
            harness.wait(leaver)
            assert isinstance(leaver.last(), Cancelled)
        assert harness.engine.snapshot().counters.prompt_tokens_total == n_prompt_tokens
        stays = harness.start(**SHORT)
        harness.cancel(busy)
        harness.wait(busy, stays)
    assert stays.result()["tokens_predicted"] == 3


class JumpingClock:
    """The time since the start of the test, and what it is told to add to it."""

    def __init__(self) -> None:
        self.added_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> JumpingClock:
    """The clock of every engine."""
    clock = JumpingClock()

    def build_with_clock(*arguments: object, **options: object) -> EngineState:
        state = build_state(*arguments, **options)  # type: ignore[arg-type]
        state.clock = clock
        return state

    monkeypatch.setattr("pyggml_server.engine.loop.build_state", build_with_clock)
    return clock


def refused_after_an_hour(harness: EngineHarness, clock: JumpingClock, prompt: list[int]) -> Running:
    """A request that waits for one second less than an hour, and then for two more."""
    waiting = harness.start(prompt=prompt, n_predict=4)
    for seconds in (3599.0, 2.0):
        harness.call(lambda task_id: EndReasoning(task_id, "nobody"))  # the engine has taken the request by then
        assert not waiting.messages[waiting.task_ids[0]]
        clock.added_s += seconds
    harness.wait(waiting)
    return waiting


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["step by step", "runs ahead"])
@pytest.mark.parametrize(("n_slots", "prompt"), [(1, [200] * 5), (2, [200] * 200)], ids=["slot", "cells"])
def test_who_waits_too_long_for_a_slot_or_for_cells_is_refused_and_what_runs_goes_on(
    n_slots: int, prompt: list[int], runs_ahead: bool, clock: JumpingClock, smollm2_path: Path
) -> None:
    with engine(smollm2_path, ServeOptions(max_queue_s=3600.0), n_slots, runs_ahead=runs_ahead) as harness:
        busy = harness.start(**BUSY)
        harness.wait_for_tokens(busy, 60)
        refused = refused_after_an_hour(harness, clock, prompt)
        harness.wait_for_tokens(busy, busy.n_tokens() + 1)
        harness.cancel(busy)
        harness.wait(busy)
        counters = harness.engine.snapshot().counters
    assert "waited for 3600 seconds (--max-queue-seconds)" in refusal(refused)
    assert isinstance(busy.last(), Cancelled)
    assert counters.requests_refused_total == 1
