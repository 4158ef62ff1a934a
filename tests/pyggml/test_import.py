"""What `import pyggml` brings along: numpy, and nothing that only some callers need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}; import json; print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout))


def test_the_import_brings_nothing_slow_besides_numpy() -> None:
    added = imported_by("import pyggml") - imported_by("import numpy")
    assert "pyggml.transfer" in added
    slow = {"asyncio", "concurrent.futures", "email", "importlib.metadata", "ssl", "subprocess", "tempfile", "zipfile"}
    assert added & slow == set()
