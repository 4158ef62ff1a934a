"""Copies that no running chat waits for, while others decode: cached prompts and slot files.

Engine thread. Pinned memory for each direction and one helper thread, however many jobs there are: they take
turns, in the order in which they came. None of it where copies cannot be asynchronous.
"""

from __future__ import annotations

from pyggml_server.engine.background.bounce_buffer import BounceBuffer
from pyggml_server.engine.background.jobs import BackgroundJob, Helper, Steps, Turn


class BackgroundRunner:
    """The jobs that are under way. `out` and `into`: the memory on the way out of the pool and into it."""

    def __init__(self, out: BounceBuffer, into: BounceBuffer) -> None:
        self.out = out
        self.into = into
        self.helper = Helper()
        self._jobs: list[BackgroundJob] = []

    def start(self, what: str, steps: Steps[None], *, is_optional: bool = False) -> BackgroundJob:
        """Begin a job, in the line behind the others; but optional ones are behind all that are not."""
        job = BackgroundJob(what, steps, is_optional=is_optional)
        n_before = sum(not (is_before.can_be_dropped and not is_optional) for is_before in self._jobs)
        self._jobs.insert(n_before, job)
        return job

    def poll(self) -> None:
        """Let every job go as far as it can. Blocks for no copy, but for a piece that is pinned in each direction
        where a job needs more memory."""
        self.out.grow()
        self.into.grow()
        for job in list(self._jobs):
            job.advance()
        self._jobs = [job for job in self._jobs if not job.is_done()]

    def rest(self) -> None:
        """Nobody runs: unlock what jobs needed beyond what is there from the load on. Blocks if there is any."""
        if not self.are_under_way:
            self.out.rest()
            self.into.rest()

    @property
    def are_under_way(self) -> bool:
        """Whether any job has not ended."""
        return any(not job.is_done() for job in self._jobs)

    @property
    def n_bytes(self) -> int:
        """Pinned memory."""
        return self.out.pinned_bytes + self.into.pinned_bytes

    def turn(self, bounce: BounceBuffer) -> Turn:
        """What a job yields before it takes the memory."""
        return Turn(lambda: bounce.is_taken, lambda: self._free(bounce))

    def wait_for_copies(self) -> None:
        """Block until no copy touches the pool."""
        self.out.wait()
        self.into.wait()

    def _free(self, bounce: BounceBuffer) -> None:
        """Block until no job has the memory."""
        for job in list(self._jobs):
            while bounce.is_taken and not job.is_done() and not job.waits_in_line:
                job.wait_for_step()

    def close(self) -> None:
        """End every job and give all memory up; before the context is freed. Blocks for what is under way."""
        for job in self._jobs:
            job.close()
        self._jobs.clear()
        self.helper.close()
        self.out.close()
        self.into.close()
