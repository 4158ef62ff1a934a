"""A small discrete simulator: fixed traces through the model engine, for comparing policies by numbers.

Time is counted in passes: one pass = one second of the model's clock. It runs the planner's own `decide`, so what it
compares is what the server does. Not a benchmark of the machine: the same trace gives the same report everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pyggml_server.planner import Policy, decide

from tests.planner.model_engine import Decide, ModelEngine
from tests.planner.model_pool import Setup


@dataclass(frozen=True, slots=True)
class Arrival:
    at_pass: int
    n_prompt: int
    n_generate: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a trace came to. `longest_wait_passes` is of parked sequences, from park to restore."""

    n_requests: int
    n_finished: int
    n_passes: int
    n_parks: int
    n_restores: int
    n_most_parks_of_one: int
    longest_wait_passes: float
    longest_first_token_passes: float
    n_recomputes: int
    smallest_wait_share: float
    largest_wait_share: float

    @property
    def unfairness(self) -> float | None:
        """The largest share of waiting over the smallest; None where somebody never waited. Says something of equal
        chats only."""
        return self.largest_wait_share / self.smallest_wait_share if self.smallest_wait_share > 0 else None


def play(trace: Sequence[Arrival], setup: Setup, policy: Policy, decider: Decide = decide) -> ModelEngine:
    """Run the trace to its end. Raises InvariantError when the planner breaks a promise on the way."""
    engine = ModelEngine(setup, policy, decider)
    pending = sorted(trace, key=lambda arrival: arrival.at_pass)
    while pending:
        while pending and pending[0].at_pass <= engine.n_passes:
            arrival = pending.pop(0)
            engine.submit(arrival.n_prompt, arrival.n_generate, priority=arrival.priority)
        engine.step()
    engine.run_out(n_passes_max=100 + 20 * sum(arrival.n_prompt + arrival.n_generate for arrival in trace))
    return engine


def simulate(trace: Sequence[Arrival], setup: Setup, policy: Policy, decider: Decide = decide) -> Report:
    """What playing the trace comes to. Raises InvariantError as `play` does."""
    engine = play(trace, setup, policy, decider)
    waits = [
        request.first_token_s - request.arrived_s for request in engine.requests if request.first_token_s is not None
    ]
    return Report(
        n_requests=len(engine.requests),
        n_finished=sum(request.endings == ["finished"] for request in engine.requests),
        n_passes=engine.n_passes,
        n_parks=engine.counts.get("Park", 0),
        n_restores=engine.counts.get("Restore", 0),
        n_most_parks_of_one=max(request.n_parks for request in engine.requests),
        longest_wait_passes=engine.longest_wait_s,
        longest_first_token_passes=max(waits, default=0.0),
        n_recomputes=engine.counts.get("Recompute", 0),
        smallest_wait_share=min(request.wait_share for request in engine.requests),
        largest_wait_share=max(request.wait_share for request in engine.requests),
    )


def chats(n_chats: int, n_prompt: int, n_generate: int, apart_passes: int = 0) -> list[Arrival]:
    """Equal chats, all at once or a fixed number of passes apart."""
    return [Arrival(i * apart_passes, n_prompt, n_generate) for i in range(n_chats)]


def mixed(n_requests: int, n_longest: int, seed: int) -> list[Arrival]:
    """Short and long requests at random times; the same seed gives the same trace."""
    draw = random.Random(seed)
    at_pass = 0
    trace = []
    for _ in range(n_requests):
        at_pass += draw.randrange(40)
        n_total = draw.randint(8, n_longest)
        n_prompt = draw.randint(1, n_total - 4)
        trace.append(Arrival(at_pass, n_prompt, n_total - n_prompt))
    return trace
