"""`scripts/bench disk`: a small run from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.bench.disk.phases import MEASURED

ROOT = Path(__file__).parents[2]


def test_a_small_run_has_every_time_and_leaves_no_file(smollm2_path: Path, tmp_path: Path) -> None:
    numbers, folder = tmp_path / "disk.json", tmp_path / "files"
    folder.mkdir()
    words = ["scripts/bench", "disk", "--model", str(smollm2_path), "--cells", "150", "--rounds", "2"]
    words += ["--folder", str(folder), "--json", str(numbers), "--", "-t", "1", "-fit", "off", "--no-warmup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(numbers.read_text())
    assert {name: len(told[name]) for name in MEASURED} == dict.fromkeys(MEASURED, 2)
    assert min(told["median_ms"].values()) > 0
    assert told["state_bytes"] > 150 * 22 * 1024
    assert list(folder.iterdir()) == []
