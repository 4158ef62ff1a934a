"""`scripts/bench images`: which gaps count, and a small run from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.bench.images.gaps import gaps_in_and_outside
from tests.bench.stall.gaps import Arrivals
from tests.vision_models import write_gemma_like

ROOT = Path(__file__).parents[2]


def test_a_gap_counts_if_a_part_of_it_is_in_the_time_of_an_image() -> None:
    chats = [Arrivals(tokens_s=[0.0, 1.0, 3.0, 6.0]), Arrivals(tokens_s=[4.0, 4.5])]
    assert gaps_in_and_outside(chats, [(2.0, 2.5), (4.4, 4.6)]) == ([2.0, 3.0, 0.5], [1.0])
    assert gaps_in_and_outside(chats, [(1.0, 3.0)]) == ([2.0], [1.0, 3.0, 0.5])
    assert gaps_in_and_outside(chats, []) == ([], [1.0, 2.0, 3.0, 0.5])


def test_a_small_run_says_what_it_measured(tmp_path: Path) -> None:
    model, result = write_gemma_like(tmp_path), tmp_path / "result.json"
    words: list[str | Path] = [
        "scripts/bench",
        "images",
        "--model",
        model.model,
        "--mmproj",
        model.mmproj,
        "--stock",
        "",
        "--chats",
        "2",
    ]
    words += ["--tokens", "60", "--images", "1", "--rounds", "1", "--json", result]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = json.loads(result.read_text())["results"]["ours"]
    assert ours["gaps_during_an_image_ms"]["n"] + ours["other_gaps_ms"]["n"] == 2 * 59
    assert len(ours["image_s"]) == len(ours["worst_gap_of_each_round_ms"]) == 1
    assert done.stdout.splitlines()[1].startswith("ours")
