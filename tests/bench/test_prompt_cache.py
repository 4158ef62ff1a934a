"""`scripts/bench prompt_cache`: which gaps belong to a phase, and a small run from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.bench.prompt_cache.phases import Load, gaps_s

ROOT = Path(__file__).parents[2]


def test_a_gap_belongs_to_every_phase_that_it_reaches_into() -> None:
    tokens_s = [0.0, 1.0, 3.0, 6.0, 10.0]
    assert gaps_s(tokens_s, 2.0, 5.0) == [2.0, 3.0]
    assert gaps_s(tokens_s, 20.0, 21.0) == []


def test_the_pool_holds_every_chat_to_its_end() -> None:
    load = Load("model", 16, 200, 500, ())
    assert load.n_cells >= 20 * 700 + load.n_runner_tokens


def test_a_small_run_finds_the_prompts_of_those_who_come_back_where_there_is_a_cache(
    smollm2_path: Path, tmp_path: Path
) -> None:
    numbers = tmp_path / "prompt_cache.json"
    words = ["scripts/bench", "prompt_cache", "--model", str(smollm2_path), "--only", "ours,ours-no-cache"]
    words += ["--chats", "6", "--prompt", "24", "--tokens", "4", "--json", str(numbers)]
    words += ["--", "-t", "1", "-fit", "off", "--no-warmup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(numbers.read_text())["runs"]
    assert len(runs["ours"]["new"]["first_token_ms"]) == 4
    assert sum(runs["ours"]["back"]["n_cached"]) > sum(runs["ours-no-cache"]["back"]["n_cached"])
