"""How many users a replica serves, and what breaks first: `scripts/bench scale`.

A simulation with the planner's own `decide`. It needs no model and gives the same numbers on every machine. 10, 100 and
1,000 users in conversation, with time to think between their turns, on some numbers of replicas.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "server"))

from tests.bench.bars_svg import bars_svg
from tests.bench.command_line import bench_parser
from tests.bench.scale.users import Replica, simulate_users

#: Users of all replicas, and the numbers of replicas that are tried.
CASES = ((10, (1,)), (100, (1, 2, 4)), (1000, (1, 2, 4, 8, 16)))
#: The same users on one replica that has less of one thing.
VARIANTS = (
    ("as above", Replica()),
    ("32 slots", Replica(n_slots=32)),
    ("128 slots", Replica(n_slots=128)),
    ("twice the cells", Replica(n_cells=131072)),
    ("half the cells", Replica(n_cells=32768)),
    ("half the cells, 1 GiB host memory", Replica(n_cells=32768, host_bytes=1 << 30)),
)
N_VARIANT_USERS = 250
COLUMNS = {
    "users_of_all": "users",
    "replicas": "replicas",
    "users": "users of each",
    "variant": "replica",
    "first_token_p50_s": "first token, p50 s",
    "first_token_p95_s": "p95 s",
    "rate_p50": "tokens/s of a chat, p50",
    "rate_p5": "p5",
    "parks_per_answer": "parks per answer",
    "longest_parked_s": "longest parked, s",
    "cached_share": "prompt cached",
    "most_host_gib": "host memory, GiB",
    "pool_share_of_running": "pool in use",
    "recomputes": "recomputes",
}


def main(words: list[str]) -> int:
    parser = bench_parser("scale", __doc__)
    parser.add_argument("--plot", type=Path, help="write the waits as SVG to this file")
    options = parser.parse_args(words)
    result = simulate()
    print(table(result["sizes"]), table(result["variants"]), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        options.plot.write_text(plot(result["sizes"]))
    return 0


def simulate() -> dict[str, Any]:
    """All cases, as the file has them."""
    sizes = [
        {"users_of_all": n_users, "replicas": n, **simulate_users(-(-n_users // n), Replica())}
        for n_users, numbers in CASES
        for n in numbers
    ]
    variants = [{"variant": name, **simulate_users(N_VARIANT_USERS, replica)} for name, replica in VARIANTS]
    return {"command": "scripts/bench scale", "replica": asdict(Replica()), "sizes": sizes, "variants": variants}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    names = [name for name in COLUMNS if name in rows[0]]
    lines = ["| " + " | ".join(COLUMNS[name] for name in names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(f"{row[name]}" for name in names) + " |" for row in rows]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]]) -> str:
    """How long users wait for the first token."""
    groups: dict[str, list[tuple[str, float]]] = {
        f"{row['users_of_all']} users, {row['replicas']} replicas": [
            ("p50", row["first_token_p50_s"]),
            ("p95", row["first_token_p95_s"]),
        ]
        for row in rows
    }
    return bars_svg("Time to the first token", "seconds", groups)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
