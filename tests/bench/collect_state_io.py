"""Joins what scripts/gpu left in a folder to one result and a table: `python collect_state_io.py FOLDER OUT.json`.

The outputs of state_io_bench, as far as there are any, and the summary: what was run, how it ended, what was not run.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LEVELS = ("base", "merged", "gathered")
LAYOUTS = ("comb", "broken", "one_run")


def device() -> str:
    """The GPU and its driver as nvidia-smi names them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def checks(folder: Path) -> dict[str, str]:
    """How each check of the summary ended: `exit 0`, `equal`, `not run, no time left`."""
    lines = (folder / "summary.txt").read_text().splitlines()
    return {name: ended for name, _, ended in (line.rpartition(": ") for line in lines)}


def collect(folder: Path) -> dict[str, Any]:
    """The checks, the results of all levels, what they ran on, and whether the bytes of the levels agree."""
    files = {level: folder / f"state-io-{level}.json" for level in LEVELS}
    levels = {level: json.loads(file.read_text()) for level, file in files.items() if file.exists()}
    hashes = {layout: {level[layout]["hash"] for level in levels.values()} for layout in LAYOUTS}
    return {
        "device": device(),
        "model": "Qwen3-4B's shape, random weights, f16 KV (tests/bench/qwen3_4b_shape.py)",
        "command": "scripts/gpu run",
        "date": datetime.date.today().isoformat(),
        "same_bytes": len(levels) == len(LEVELS) and all(len(values) == 1 for values in hashes.values()),
        "levels": levels,
        "checks": checks(folder),
    }


def table(result: dict[str, Any]) -> str:
    """Medians in milliseconds, a line per level and layout."""
    lines = [f"{'level':10} {'layout':8} {'save ms':>9} {'restore ms':>11}"]
    for level, layouts in result["levels"].items():
        for layout in LAYOUTS:
            row = layouts[layout]
            lines.append(f"{level:10} {layout:8} {row['save_median_ms']:9.2f} {row['restore_median_ms']:11.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    joined = collect(Path(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(joined, indent=1) + "\n")
    print(table(joined))
    print("bytes of all levels are equal:", joined["same_bytes"])
