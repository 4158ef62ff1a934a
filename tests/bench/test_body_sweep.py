"""`scripts/bench body_sweep`: one endpoint of ours, from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.bench.body_sweep.__main__ import summed
from tests.e2e.body_sweep import GENERATING, wrong_bodies

ROOT = Path(__file__).parents[2]
PATH = "/detokenize"


def test_the_statuses_of_all_endpoints_are_summed() -> None:
    assert summed({"/a": {"200": 1, "400": 2}, "/b": {"400": 3, "500": 1}}) == {"200": 1, "400": 5, "500": 1}


def test_every_body_of_an_endpoint_is_counted(smollm2_path: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "statuses.json"
    words = ["scripts/bench", "body_sweep", "--model", str(smollm2_path), "--stock", "", "--paths", PATH]
    done = subprocess.run(
        [*words, "--json", str(numbers)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(numbers.read_text())
    n_bodies = len(list(wrong_bodies(PATH, GENERATING[PATH])))
    assert sum(told["all"]["pyggml_server"].values()) == n_bodies
    assert set(told["statuses"]["pyggml_server"][PATH]) == {"200", "400"}
