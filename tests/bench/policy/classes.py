"""A mixed load of interactive and batch requests, with and without classes: what the ones gain and the others lose.

The interactive requests are short and keep coming; the batch requests are long and there from the start. No clock: the
same numbers everywhere.
"""

from __future__ import annotations

import random
from statistics import mean
from typing import Any

from pyggml_server.planner import Policy

from tests.planner.model_pool import Setup
from tests.planner.model_slot import Request
from tests.planner.simulator import Arrival, play

SETUP = Setup(n_cells=2000, n_slots=12, n_batch=512)
ROTATE_S, AGE_S = 60.0, 120.0
BATCH = 1
#: Name, class of the batch requests, and after how long they count as of the best class.
VARIANTS = (("one class", 0, 0.0), ("two classes", BATCH, 0.0), ("two classes, ageing", BATCH, AGE_S))


def mixed_load(batch_class: int) -> list[Arrival]:
    """Eight batch requests at once, and 60 interactive ones at random times; the same each time."""
    draw = random.Random(19)
    batch = [Arrival(0, draw.randint(100, 300), draw.randint(400, 700), batch_class) for _ in range(8)]
    interactive = []
    at_pass = 0
    for _ in range(60):
        at_pass += draw.randint(5, 45)
        interactive.append(Arrival(at_pass, draw.randint(20, 250), draw.randint(20, 120)))
    return [*batch, *interactive]


def compare_classes() -> list[dict[str, Any]]:
    """One row per variant and kind of request. Raises InvariantError when a run breaks a rule."""
    rows = []
    for name, batch_class, age_s in VARIANTS:
        engine = play(mixed_load(batch_class), SETUP, Policy(rotate_s=ROTATE_S, age_s=age_s))
        is_batch = [request.n_generate >= 400 for request in engine.requests]
        for kind, wanted in (("interactive", False), ("batch", True)):
            requests = [r for r, is_one in zip(engine.requests, is_batch, strict=True) if is_one is wanted]
            rows.append({"variant": name, "kind": kind, "n_passes": engine.n_passes, **_numbers(requests)})
    return rows


def classes_table(rows: list[dict[str, Any]]) -> str:
    """Markdown; all times in passes."""
    columns = {
        "variant": "variant",
        "kind": "requests",
        "n_finished": "finished",
        "mean_first_token_passes": "first token, mean",
        "longest_first_token_passes": "longest",
        "mean_end_passes": "end, mean",
        "longest_end_passes": "longest ",
        "n_parks": "parks",
    }
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row[key] if isinstance(row[key], str) else f"{row[key]:g}" for key in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _numbers(requests: list[Request]) -> dict[str, float]:
    first_tokens = [r.first_token_s - r.arrived_s for r in requests if r.first_token_s is not None]
    ends = [r.ended_s - r.arrived_s for r in requests if r.ended_s is not None]
    return {
        "n_finished": sum(r.endings == ["finished"] for r in requests),
        "mean_first_token_passes": round(mean(first_tokens), 1),
        "longest_first_token_passes": max(first_tokens),
        "mean_end_passes": round(mean(ends), 1),
        "longest_end_passes": max(ends),
        "n_parks": sum(r.n_parks for r in requests),
    }
