"""Jobs while others decode: who waits for what, what a failure ends, and what the end of a job waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.background.jobs import Awaited, BackgroundJob, Helper, Steps, at_once
from pyggml_server.engine.background.runner import BackgroundRunner
from pyggml_server.engine.idle_slots import async_prompt_cache
from pyggml_server.engine.transfers.native_transfer import LendingTransfer


class Light:
    """Done when it is told so; blocks nobody: who waits switches it."""

    def __init__(self) -> None:
        self.is_green = False
        self.n_waits = 0

    def is_done(self) -> bool:
        return self.is_green

    def wait(self) -> None:
        self.is_green = True
        self.n_waits += 1


@pytest.fixture
def copies() -> Iterator[BackgroundRunner]:
    """Without any memory: only turns matter."""
    out, into = (BounceBuffer([], _no_transfer, None, is_lasting=True) for _ in range(2))
    made = BackgroundRunner(out, into)
    yield made
    made.close()


def _no_transfer(_: object) -> LendingTransfer:
    raise AssertionError("there is no context")


def test_a_job_takes_the_steps_that_it_can_and_no_more() -> None:
    lights = [Light(), Light()]
    done: list[int] = []

    def steps() -> Steps[None]:
        for i, light in enumerate(lights):
            yield light
            done.append(i)

    job = BackgroundJob("work", steps())
    job.advance()
    assert done == []
    lights[1].is_green = True
    job.advance()
    assert done == []
    job.wait()
    assert (done, lights[0].n_waits, lights[1].n_waits, job.is_done()) == ([0, 1], 1, 0, True)


def test_a_job_that_fails_has_ended_and_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def steps() -> Steps[None]:
        yield Light()
        raise RuntimeError("broken")

    job = BackgroundJob("the save of slot 3", steps())
    job.wait()
    assert job.is_done()
    assert "the save of slot 3 failed" in caplog.text


def test_what_the_helper_was_given_is_waited_for_when_the_job_is_closed() -> None:
    helper, may_go = Helper(), threading.Event()
    results: list[bool] = []
    job = BackgroundJob("work", helper.run(lambda: results.append(may_go.wait(60))))
    job.advance()
    threading.Timer(0, may_go.set).start()
    job.close()
    assert results == [True]
    helper.close()


def test_what_the_helper_raises_comes_out_of_the_step() -> None:
    helper = Helper()

    def steps() -> Steps[None]:
        with pytest.raises(OSError, match="full"):
            yield from helper.run(refuse)

    def refuse() -> None:
        raise OSError("the disk is full")

    job = BackgroundJob("work", steps())
    job.wait()
    assert job.is_done()
    helper.close()


def in_turn(copies: BackgroundRunner, name: str, done: list[str], during: Awaited) -> Steps[None]:
    yield copies.turn(copies.out)
    with copies.out.turn():
        yield during
        done.append(name)


def test_turns_come_in_order_but_what_can_be_dropped_is_behind_the_others(copies: BackgroundRunner) -> None:
    done: list[str] = []
    held = Light()
    copies.start("first", in_turn(copies, "first", done, held))
    copies.poll()
    optional = [
        copies.start(name, in_turn(copies, name, done, Light()), is_optional=True) for name in ("idle a", "idle b")
    ]
    urgent = copies.start("urgent", in_turn(copies, "urgent", done, Light()))
    copies.poll()
    assert all(job.can_be_dropped for job in optional)
    assert not urgent.can_be_dropped
    optional[0].close()
    held.is_green = True
    copies.poll()
    urgent.wait()
    optional[1].wait()
    assert done == ["first", "urgent", "idle b"]
    assert not copies.are_under_way


def its_end(save: async_prompt_cache._Save) -> Awaited:
    return save


def that_it_comes(save: async_prompt_cache._Save) -> Awaited:
    return async_prompt_cache._Coming([save], [], [1])


@pytest.mark.parametrize("awaited", [its_end, that_it_comes])
def test_who_waits_for_a_job_that_stands_in_line_is_not_waited_for_by_it(
    awaited: Callable[[async_prompt_cache._Save], Awaited], copies: BackgroundRunner
) -> None:
    """The exchange of prompts waits for its own save, whose turn comes after that of an idle slot: what the whole line
    waits for is the idle slot's copy, and the exchange stands before that one in the list."""
    done: list[str] = []

    def exchange() -> Steps[None]:
        save = copies.start("its save", in_turn(copies, "its save", done, Light()))
        yield awaited(async_prompt_cache._Save([1], save))
        done.append("exchange")

    copies.start("idle", in_turn(copies, "idle", done, Light()), is_optional=True)
    job = copies.start("exchange", exchange())
    copies.poll()
    assert copies.out.is_taken
    job.wait()
    assert done == ["idle", "its save", "exchange"]


def test_a_turn_ends_with_its_job_however_that_ends(copies: BackgroundRunner) -> None:
    job = copies.start("work", in_turn(copies, "work", [], Light()))
    copies.poll()
    assert copies.out.is_taken
    job.close()
    assert not copies.out.is_taken


def test_a_job_that_is_done_at_once_waits_for_each_step_and_gives_its_result() -> None:
    lights = [Light(), Light()]

    def steps() -> Steps[str]:
        yield from lights
        return "done"

    assert at_once(steps()) == "done"
    assert [light.n_waits for light in lights] == [1, 1]


def test_what_a_job_raises_that_is_done_at_once_is_raised() -> None:
    def steps() -> Steps[None]:
        yield Light()
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        at_once(steps())
