"""Joins what `width_bench` printed with what it ran on: `python -m tests.bench.collect_width IN OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.bench.machine import ran_on


def runs_in(text: str) -> list[dict[str, Any]]:
    """Every JSON object of the text, in order. Raises ValueError where there is anything else."""
    decoder, runs, text = json.JSONDecoder(), [], text.strip()
    while text:
        run, end = decoder.raw_decode(text)
        runs.append(run)
        text = text[end:].lstrip()
    return runs


def main(source: str, target: str) -> None:
    """Write the document, and print it."""
    document = {
        "command": "scripts/gpu-server run FOLDER OUT width",
        **ran_on(),
        "model": "qwen3-4b-shape.gguf",
        "runs": runs_in(Path(source).read_text(encoding="utf-8")),
    }
    text = json.dumps(document, indent=1)
    Path(target).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
