"""The tunable numbers of the planner, one frozen value per model load. No logic, nothing derived from the machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class VictimPolicy(Enum):
    """`--preempt-policy`: who is parked first."""

    SMALLEST = "smallest"  # fewest owned cells: the cheapest copy
    YOUNGEST = "youngest"  # latest request
    OLDEST = "oldest"  # earliest request


@dataclass(frozen=True, slots=True)
class Policy:
    """Numbers that `decide` weighs.

    is_enabled          False: `decide` returns the empty plan for every view.
    victim              whom to park first.
    n_lookahead_steps   decode steps of each running slot kept clear where a park frees cells late, and at each restore.
    rotate_s            seconds that a parked chat waits before it gets a turn; 0 = never.
    age_s               seconds after which one that waits counts as of the best class (rule 13); 0 = never.
    n_preempt_every     park a slot after every so many tokens that it generated; 0 = off (for tests).
    """

    is_enabled: bool = True
    victim: VictimPolicy = VictimPolicy.SMALLEST
    n_lookahead_steps: int = 8
    rotate_s: float = 0.0
    age_s: float = 0.0
    n_preempt_every: int = 0
