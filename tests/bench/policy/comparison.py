"""Every policy on every fixed trace, with and without turns, as rows of numbers. The same everywhere: no clock."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pyggml_server.planner import Policy
from pyggml_server.planner.policy import VictimPolicy

from tests.bench.policy.traces import Trace
from tests.planner.simulator import simulate

#: Passes that a chat waits before it gets a turn; 0 = never.
ROTATIONS_PASSES = (0, 60)


def compare(traces: list[Trace]) -> list[dict[str, Any]]:
    """One row per trace, victim policy and rotation. Raises InvariantError when a run breaks a rule."""
    return [
        row(trace, victim, rotate_passes)
        for trace in traces
        for victim in VictimPolicy
        for rotate_passes in ROTATIONS_PASSES
    ]


def row(trace: Trace, victim: VictimPolicy, rotate_passes: int) -> dict[str, Any]:
    report = simulate(trace.arrivals, trace.setup, Policy(victim=victim, rotate_s=float(rotate_passes)))
    numbers = {name: round(value, 4) for name, value in asdict(report).items()}
    unfairness = round(report.unfairness, 3) if trace.are_equal and report.unfairness else None
    return {
        "trace": trace.name,
        "victim": victim.value,
        "rotate_passes": rotate_passes,
        **numbers,
        "largest_over_smallest_wait_share": unfairness,
    }


def longest_bounded_wait_passes(trace: Trace, rotate_passes: int) -> int:
    """What nobody may wait longer than while turns are given. In front of the last in line are all other slots; each
    comes in once, keeps its place for one delay, and takes the copies of whoever leaves for it and its own."""
    n_slots = trace.setup.n_slots
    return n_slots * (rotate_passes + n_slots * trace.setup.n_passes_per_copy) + rotate_passes
