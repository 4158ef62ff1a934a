"""Compares the planner's policies on fixed traces: `scripts/bench policy`.

A simulation with the planner's own `decide`, in passes of the loop: it needs no model and gives the same numbers on
every machine. Victims are the smallest, the youngest or the oldest chat; turns are given after 60 passes, or never.
A second table has a mixed load of interactive and batch requests, in one class and in two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "server"))

from tests.bench.bars_svg import bars_svg
from tests.bench.command_line import bench_parser
from tests.bench.policy.classes import classes_table, compare_classes
from tests.bench.policy.comparison import compare
from tests.bench.policy.traces import traces

COLUMNS = {
    "trace": "trace",
    "victim": "victim",
    "rotate_passes": "turns",
    "n_finished": "finished",
    "n_passes": "makespan",
    "n_parks": "parks",
    "n_most_parks_of_one": "of one",
    "longest_wait_passes": "longest wait",
    "longest_first_token_passes": "first token",
    "largest_over_smallest_wait_share": "unfairness",
}


def main(words: list[str]) -> int:
    parser = bench_parser("policy", __doc__)
    parser.add_argument("--plot", type=Path, help="write the longest waits as SVG to this file")
    options = parser.parse_args(words)
    rows = compare(traces())
    mixed = compare_classes()
    print(table(rows), classes_table(mixed), sep="\n\n")
    if options.json:
        options.json.write_text(
            json.dumps({"command": "scripts/bench policy", "rows": rows, "classes": mixed}, indent=1) + "\n"
        )
    if options.plot:
        options.plot.write_text(plot(rows))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown. Waits and makespan in passes; unfairness is the largest share of waiting over the smallest."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = [_cell(key, row[key]) for key in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]]) -> str:
    """The longest wait of a parked chat, by trace."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        turns = "turns" if row["rotate_passes"] else "no turns"
        groups.setdefault(row["trace"], []).append((f"{row['victim']}, {turns}", row["longest_wait_passes"]))
    return bars_svg("Longest wait of a parked chat", "passes", groups)


def _cell(key: str, value: str | float | None) -> str:
    if value is None:
        return "-"
    if key == "rotate_passes":
        return f"after {value}" if value else "never"
    return value if isinstance(value, str) else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
