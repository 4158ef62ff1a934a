"""A short soak with model and cache on simdev, where copies run as late as the order allows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.native.conftest import NativeTests

ROOT = Path(__file__).parents[2]
LIMIT_S = 1800
# Rounds with turns and with forced parks, in pools of a few states. `scripts/soak` takes others each time.
SEED = "1085"


def test_three_rounds_hold_on_simdev(native_tests: NativeTests, narrow_path: Path) -> None:
    env = os.environ | {"GGML_BACKEND_PATH": str(native_tests.simdev), "PYTHONPATH": f"{ROOT}:{ROOT / 'server'}"}
    command = [sys.executable, "-m", "tests.soak", "--model", str(narrow_path), "--rounds", "3", "--seed", SEED]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    print(done.stdout)
    assert done.stdout.count(" on simdev, ") == 3
