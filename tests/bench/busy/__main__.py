"""What other programs on the same cores cost a server, and what its waiting threads cost them: `scripts/bench busy`.

Threads that compute wait for each other many times for each token. GCC's OpenMP library lets them spin while they
wait, which takes the core from whoever they wait for. Here each setting of that runs alone, as two servers side by
side, and beside programs that compute, in turns. Ratios are to the first setting of the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from tests.bench.busy.situations import Plan, Setting, measure
from tests.bench.command_line import server_parser
from tests.bench.machine import default_model, ran_on

N_CORES = len(os.sched_getaffinity(0))
WAYS_TO_WAIT = "300000 spins,5000 spins,2000 spins,1000 spins,passive"  # the first is OpenMP's own default


def main(words: list[str]) -> int:
    options = parse(words)
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_"))]:
        del os.environ[name]
    model = options.model or default_model()
    told: dict[str, Any] = {"command": shlex.join(["scripts/bench", "busy", *words]), **ran_on()}
    told |= {"model": Path(model).name, "cores": N_CORES, "threads": options.threads}
    plan = Plan(settings(options, model), options.tokens, options.rounds, N_CORES)
    told["rows"] = measure(plan)
    print(table(told["rows"]))
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("busy", __doc__)
    parser.add_argument("--threads", type=int, default=N_CORES, help="-t of each server (default: the cores)")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each answer (default: 48)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each setting (default: 3)")
    parser.add_argument("--settings", default=WAYS_TO_WAIT, help=f"ways to wait (default: {WAYS_TO_WAIT})")
    return parser.parse_args(words)


def settings(options: argparse.Namespace, model: str) -> dict[str, Setting]:
    """Ours in every way to wait, and with one thread; llama-server in the first way."""
    here = ("-m", model, "--host", "127.0.0.1", "--port", "0", "-c", "1024", *options.server_flags)
    threads = ("-t", str(options.threads), "-tb", str(options.threads))
    ours = (*options.ours, *here)
    ways = options.settings.split(",")
    found = {name: Setting((*ours, *threads), environment(name)) for name in ways}
    found["one thread"] = Setting((*ours, "-t", "1", "-tb", "1"), environment(ways[0]))
    if options.stock:
        found["llama-server"] = Setting((*options.stock, *here, *threads), environment(ways[0]))
    return found


def environment(way: str) -> dict[str, str]:
    """Of a server whose threads wait so: `N spins`, or `passive`."""
    n_spins = way.removesuffix(" spins")
    return {"OMP_WAIT_POLICY": way} if n_spins == way else {"GOMP_SPINCOUNT": n_spins}


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each row."""
    line = "{:<15} {:<26} {:>9} {:>7} {:>15}"
    lines = [line.format("situation", "setting", "tokens/s", "ratio", "longest gap, ms")]
    for row in rows:
        numbers = (row["tokens_per_s"], row["ratio_to_first"], row["longest_gap_ms"])
        lines.append(line.format(row["situation"], row["setting"], *numbers))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
