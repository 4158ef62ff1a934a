"""How long a parked chat takes to come back, by where its state is: `scripts/bench disk`.

One chat is parked by hand and called back, again and again. Measured is the time from the call to its next token: with
the state in host memory, with the state in a file (--preempt-disk), and, for the same tokens in a request that finds
nothing cached, by computing them. What is written and read does not stay in the page cache, so the file comes from the
device that --folder is on.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.bench.command_line import server_parser
from tests.bench.disk.phases import MEASURED, Load, measure
from tests.bench.machine import default_model, ran_on


def main(words: list[str]) -> int:
    options = parse(words)
    model = options.model or default_model()
    load = Load(model, options.cells, options.rounds, options.folder, tuple(options.server_flags))
    measured = measure(tuple(options.ours), load)
    medians = {name: round(statistics.median(measured[name]), 1) for name in MEASURED}
    print(table(medians, measured))
    if options.json:
        told = {"command": shlex.join(["scripts/bench", "disk", *words]), **ran_on(), "model": Path(model).name}
        options.json.write_text(json.dumps({**told, "median_ms": medians, **measured}, indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("disk", __doc__)
    parser.add_argument("--cells", type=int, default=1989, help="cells of the chat (default: 1989)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is taken (default: 5)")
    parser.add_argument("--folder", default="/var/tmp", help="where the files are (default: /var/tmp)")
    return parser.parse_args(words)


def table(medians: dict[str, float], measured: dict[str, Any]) -> str:
    """A line for each way, in milliseconds; the state's size first."""
    lines = [f"state of {measured['n_cells']} cells: {measured['state_bytes'] / 1e6:.1f} MB, all times in ms"]
    for name, what in MEASURED.items():
        worst, n_bytes = max(measured[name]), measured["state_bytes"]
        speed = f"{n_bytes / medians[name] / 1e6:8.2f} GB/s" if name in ("written_ms", "read_ms") else ""
        lines.append(f"{what:<44} median {medians[name]:9.1f}  worst {worst:9.1f} {speed}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
