"""`scripts/bench slot_states`: a small run from end to end, the same llama-server as both programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.bench.slot_states.phases import MEASURED, prompt
from tests.e2e.program import stock_program

ROOT = Path(__file__).parents[2]


def test_no_prompt_begins_another() -> None:
    prompts = [prompt(number, 8) for number in range(40)]
    assert len({words[0] for words in prompts}) == len(prompts)


def test_a_small_run_has_every_time_of_both_programs(smollm2_path: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "slot_states.json"
    words = ["scripts/bench", "slot_states", "--model", str(smollm2_path), "--unpatched", str(stock_program())]
    words += ["--chats", "3", "--prompt", "8", "--tokens", "24", "--json", str(numbers)]
    words += ["--", "-t", "1", "-fit", "off", "--no-warmup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(numbers.read_text())
    assert {program: len(of) for program, of in told["rounds"].items()} == {"unpatched": 2, "patched": 2}
    for medians in told["median_ms"].values():
        assert set(medians) == set(MEASURED)
        assert min(medians.values()) > 0
    for of in told["rounds"].values():
        assert all(one["n_saved_bytes"] > 0 and one["n_cached"] > 24 for one in of)
