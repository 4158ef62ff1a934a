"""Measures one call of the planner: `scripts/bench decide`.

Each scene is a full pool in which something is held, so that the planner is asked the same question pass after pass.
The time is the best of many calls, in microseconds, on one thread. The JSON also counts the Python instructions of a
call, which are the same on every machine with the same Python.
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
import timeit
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "server"))

from pyggml_server.planner import decide

from tests.bench.command_line import bench_parser
from tests.bench.decide.scenes import POLICY, SCENES
from tests.instructions import n_instructions

N_SLOTS = (16, 32, 64, 256)


def main(words: list[str]) -> int:
    parser = bench_parser("decide", __doc__)
    parser.add_argument("--calls", type=int, default=50, help="calls in each of 40 rounds (default %(default)s)")
    options = parser.parse_args(words)
    rows = measure(options.calls)
    print(table(rows))
    if options.json:
        command = shlex.join(["scripts/bench", "decide", *words])
        numbers = {"command": command, "python": platform.python_version(), "rows": rows}
        options.json.write_text(json.dumps(numbers, indent=1) + "\n")
    return 0


def measure(n_calls: int) -> list[dict[str, Any]]:
    """One row per scene and number of slots."""
    rows = []
    for scene in SCENES:
        for n_slots in N_SLOTS:
            view = scene(n_slots)
            times_s = timeit.repeat(partial(decide, view, POLICY), number=n_calls, repeat=40)
            rows.append(
                {
                    "scene": scene.__name__.replace("_", " "),
                    "n_slots": n_slots,
                    "best_us": round(1e6 * min(times_s) / n_calls, 1),
                    "n_instructions": n_instructions(partial(decide, view, POLICY)),
                    "n_actions": len(decide(view, POLICY).actions),
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: microseconds per call."""
    lines = ["| held | " + " | ".join(f"{n} slots" for n in N_SLOTS) + " |", "|" + "---|" * (1 + len(N_SLOTS))]
    for scene in dict.fromkeys(row["scene"] for row in rows):
        cells = [f"{row['best_us']:g} us" for row in rows if row["scene"] == scene]
        lines.append(f"| {scene} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
