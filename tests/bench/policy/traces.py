"""The fixed traces that policies are compared on, in `traces.json`: arrivals, and the pool that they meet.

Of each arrival the file has the pass, the prompt's tokens and the tokens to generate.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.planner.model_pool import Copies, Setup
from tests.planner.simulator import Arrival

FILE = Path(__file__).with_name("traces.json")


@dataclass(frozen=True, slots=True)
class Trace:
    """One workload. `are_equal`: its chats differ in nothing, so that their shares of waiting can be compared."""

    name: str
    what: str
    setup: Setup
    arrivals: tuple[Arrival, ...]
    are_equal: bool


def traces() -> list[Trace]:
    """All of them, in the order of the file."""
    return [
        Trace(
            name,
            entry["what"],
            Setup(copies=Copies[entry["copies"]], **entry["pool"]),
            tuple(Arrival(*numbers) for numbers in entry["arrivals"]),
            entry["are_equal"],
        )
        for name, entry in json.loads(FILE.read_text()).items()
    ]
