"""Work of several steps while others decode. A job says what it waits for, and never waits itself.

Engine thread; only what it gives to `Helper` runs elsewhere. A job is a generator that yields what must be done before
its next step. A caller that needs its end may block for it; closing it early ends it at the step that it is in, and
what that step began (a copy, a task of the helper) is waited for. Not `async def`, which takes as many lines: no event
loop runs here, and a type checker would let a job await what needs one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Awaited(Protocol):
    """Something that ends by itself."""

    def is_done(self) -> bool:
        """Whether it has. Never blocks."""

    def wait(self) -> None:
        """Block until it has."""


Steps = Generator[Awaited, None, Result]


class InLine:
    """Something that is up to other jobs. A job that waits for it holds nothing that others wait for."""

    __slots__ = ()


class Turn(InLine):
    """The moment at which no job has what only one at a time can have."""

    def __init__(self, is_taken: Callable[[], bool], free: Callable[[], None]) -> None:
        self._is_taken = is_taken
        self._free = free

    def is_done(self) -> bool:
        return not self._is_taken()

    def wait(self) -> None:
        self._free()


class BackgroundJob:
    """Runs the steps. `is_optional`: it may be closed before it had its first turn."""

    def __init__(self, what: str, steps: Steps[None], *, is_optional: bool = False) -> None:
        self._what = what
        self._steps = steps
        self._is_optional = is_optional
        self._awaited: Awaited | None = None
        self._is_done = False

    def is_done(self) -> bool:
        """Whether it has ended, or was closed."""
        return self._is_done

    @property
    def waits_in_line(self) -> bool:
        """Whether it has nothing but its place in a line, or waits for a job that has no more."""
        return not self._is_done and (self._awaited is None or isinstance(self._awaited, InLine))

    @property
    def can_be_dropped(self) -> bool:
        """Whether it may be closed for its slot."""
        return self._is_optional and self.waits_in_line

    def advance(self) -> None:
        """Take every step that can be taken now. Never blocks. An error ends this job only."""
        try:
            while not self._is_done and (self._awaited is None or self._awaited.is_done()):
                self._awaited = next(self._steps)
        except StopIteration:
            self._is_done = True
        except Exception:
            self._is_done = True
            log.exception("%s failed", self._what)

    def wait_for_step(self) -> None:
        """Block until it can take its next step, and take it."""
        if not self._is_done and self._awaited is not None:
            self._awaited.wait()
        self.advance()

    def wait(self) -> None:
        """Block until it has ended."""
        while not self._is_done:
            self.wait_for_step()

    def close(self) -> None:
        """End it where it is. Blocks until what it began has ended."""
        self._is_done = True
        self._steps.close()


class _Task:
    """One task of the helper."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def is_done(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        self._future.exception()


class Helper:
    """The thread that copies between pinned and pageable memory, and reads and writes files."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "copies")

    def run(self, work: Callable[[], Result]) -> Steps[Result]:
        """A step of a job: `work` on the helper thread; its result, or what it raised."""
        results: list[Result] = []
        errors: list[Exception] = []

        def guarded() -> None:
            try:
                results.append(work())
            except Exception as error:
                errors.append(error.with_traceback(None))  # its frames hold views of a buffer

        task = _Task(self._executor.submit(guarded))
        try:
            yield task
        finally:
            task.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Block until its thread has ended. Idempotent."""
        self._executor.shutdown()


def completion(copy: Awaited) -> Steps[None]:
    """A step of a job: the end of a copy."""
    try:
        yield copy
    finally:
        copy.wait()


def at_once(steps: Steps[Result]) -> Result:
    """All steps of a job, one after the other. Blocks for each. Raises what they raise."""
    while True:
        try:
            next(steps).wait()
        except StopIteration as end:
            result: Result = end.value
            return result
