"""How fast one of four sequences is parked and restored, and how long that holds the thread: `scripts/bench transfers`.

Three patterns of cells ("comb": half contiguous, then every fourth; "broken": runs of random length; "one run"), both
directions, next to one contiguous pinned copy of the same bytes and the synchronous calls, in the same run. The
states are compared byte for byte every time. Compare inside one run only: machines differ.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.bars_svg import bars_svg
from tests.bench.command_line import ROOT, model_parser
from tests.bench.machine import default_model, ran_on
from tests.bench.transfers.program import DIRECTIONS, PATTERNS, build
from tests.bench.transfers.summary import summaries

KV_TYPES = "f32,f16,bf16,q8_0,q5_1,q4_0"
COLUMNS = ("issue_ms", "post_ms", "total_ms", "gb_s", "ratio_to_contiguous")


def main(words: list[str]) -> int:
    options = parse(words)
    model = options.model or default_model()
    program = build(ROOT / "build" / "bench", options.tree, options.libraries)
    arguments = [model, options.cells, options.repeats, options.staging, options.types]
    done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return done.returncode
    measured = json.loads(done.stdout)
    rows = summaries(measured)
    print(table(rows))
    unequal = [name for name, is_equal in measured["equal_after_restore"].items() if not is_equal]
    print("rows before and after, by type of the cache:", f"NOT equal for {', '.join(unequal)}" if unequal else "equal")
    if options.plot:
        options.plot.write_text(plot(rows))
    if options.json:
        command = shlex.join(["scripts/bench", "transfers", *words])
        options.json.write_text(json.dumps(document(command, options.staging, measured, rows), indent=1) + "\n")
    return 1 if unequal else 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = model_parser("transfers", __doc__)
    parser.add_argument("--cells", type=int, default=1989, help="cells of each sequence (default: 1989)")
    parser.add_argument("--repeats", type=int, default=15, help="parks and restores of each pattern (default: 15)")
    parser.add_argument("--staging", type=int, default=1024, help="MiB of staging memory, 0: none (default: 1024)")
    parser.add_argument(
        "--types", default=KV_TYPES, help=f"cache types that are compared as well (default: {KV_TYPES})"
    )
    parser.add_argument("--tree", type=Path, default=ROOT / "vendor/ggml/llama.cpp", help="where the headers are")
    parser.add_argument(
        "--libraries", type=Path, default=ROOT / "build/cmake/bin", help="where the libraries of the build are"
    )
    parser.add_argument("--plot", type=Path, help="write a picture here, as SVG")
    return parser.parse_args(words)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """A line for each pattern, direction and way."""
    line = "{:<10} {:<30} {:>9} {:>8} {:>9} {:>7} {:>10}"
    lines = [line.format("pattern", "copy", "issue ms", "post ms", "total ms", "GB/s", "of contig.")]
    for pattern, ways in rows.items():
        for way, row in ways.items():
            lines.append(line.format(pattern, way, *(f"{row[key]:.3f}" if key in row else "-" for key in COLUMNS)))
    return "\n".join(lines)


def plot(rows: dict[str, dict[str, Any]]) -> str:
    """Speed of each way, by pattern and direction."""
    groups = {}
    for pattern in PATTERNS:
        for direction in DIRECTIONS:
            ways = (direction, f"contiguous_{direction}_reference", f"synchronous_{direction}_reference")
            names = ("this copy", "one contiguous copy", "the synchronous call")
            groups[f"{pattern}, {direction}"] = [
                (name, rows[pattern][way]["gb_s"]) for name, way in zip(names, ways, strict=True)
            ]
    return bars_svg("One sequence out of the pool and back", "GB/s", groups)


def document(command: str, staging_mib: int, measured: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """The rows, the samples behind them, and what it ran on."""
    return {
        "command": command,
        **ran_on(),
        "device": measured["devices"],
        "model": measured["model"],
        "n_cells": measured["n_cells"],
        "staging_mib": staging_mib,
        "equal_after_restore": measured["equal_after_restore"],
        "patterns": rows,
        "samples": measured["patterns"],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
