"""Runs what needs simdev in the process itself: ggml loads its devices once, so it gets a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
LIMIT_S = 900


def run_on_simdev(native_tests: NativeTests, *words: str | Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SIMDEV_", "GGML_", "LLAMA_"))}
    env = clean | {"GGML_BACKEND_PATH": str(native_tests.simdev), "PYTHONPATH": f"{ROOT}:{ROOT / 'server'}"}
    return subprocess.run(
        [sys.executable, *words], env=env, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize("folder", ["bindings_on_simdev", "engine_on_simdev"])
def test_every_case_passes_and_none_is_left_out(
    folder: str, native_tests: NativeTests, smollm2_path: Path, tmp_path: Path
) -> None:
    assert smollm2_path.is_file()
    words: list[str | Path] = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'cases'}",
        HERE / folder,
    ]
    done = run_on_simdev(native_tests, *words)
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
    counts = re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])
    assert [what for _, what in counts[:-1]] in (["passed"], []), done.stdout[-2000:]
    assert int(counts[0][0]) >= 10


def test_the_example_decodes_while_a_conversation_is_on_its_way(native_tests: NativeTests, smollm2_path: Path) -> None:
    done = run_on_simdev(native_tests, ROOT / "examples/park_while_decoding.py", smollm2_path)
    assert done.returncode == 0, done.stdout + done.stderr
    meanwhile = [int(n) for n in re.findall(r"(\d+) tokens decoded meanwhile", done.stdout)]
    assert len(meanwhile) == 2
    assert meanwhile[0] >= 1
    assert "pinned: True" in done.stdout


def test_the_example_says_why_it_cannot_where_no_device_copies_asynchronously(smollm2_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"} | {"PYTHONPATH": str(ROOT)}
    words: list[str | Path] = [sys.executable, ROOT / "examples/park_while_decoding.py", smollm2_path]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout.startswith("this context cannot copy asynchronously: ")) == (2, True)
