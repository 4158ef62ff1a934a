"""Virtual environments for clients whose requirements are no company for ours: made once, kept under build/.

Half a gigabyte each. Where the index cannot be reached their tests are skipped, or fail where every client has to be
there (`clients.is_missing`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from build_support.layout import of_this_clone
from tests.e2e.clients import is_missing

CLIENTS = ("langchain-openai==1.7.4", "litellm[proxy]==1.108.7", "llm==0.36")
CODING_AGENT = ("aider-chat==0.86.2",)
# whatever is set for the tests: no client asks the network for prices or a newer version of itself
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_CHECK_UPDATE": "false", "AIDER_ANALYTICS_DISABLE": "true"}


def python_with(requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with these packages."""
    name = hashlib.sha256(" ".join([sys.version, *requirements]).encode()).hexdigest()[:12]
    folder = of_this_clone().build / "python-clients" / name
    python = folder / "bin" / "python"
    is_complete = folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # another test process may want it too
        if not is_complete.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *requirements]
            done = subprocess.run(install, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                is_missing(f"pip could not install {' '.join(requirements)}: {done.stderr[-300:]}")
            is_complete.touch()
    return python


def environment(told: Mapping[str, str], home: Path) -> dict[str, str]:
    """For a client: what it is told, and a home of its own."""
    return {**os.environ, **QUIET, "HOME": str(home), "NO_PROXY": "localhost,127.0.0.1", **told}


if __name__ == "__main__":  # ahead of the tests, which try again what fails here
    for wanted in (CLIENTS, CODING_AGENT):
        with contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception):
            python_with(wanted)
