"""The examples run as their documentation says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_two_conversations_end_with_the_same_tokens(smollm2_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "examples/two_conversations.py", str(smollm2_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "restored as sequence 2" in done.stdout
    assert "the same tokens as uninterrupted" in done.stdout
