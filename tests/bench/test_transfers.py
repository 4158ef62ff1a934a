"""`scripts/bench transfers`: its arithmetic, and a run on a simulated device, where calls are counted."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.bench import machine
from tests.bench.transfers.summary import summaries
from tests.native.conftest import NativeTests, native_tests

__all__ = ["native_tests"]

ROOT = Path(__file__).parents[2]
N_CELLS = 40


def test_times_are_medians_and_the_ratio_is_that_of_two_in_the_same_run() -> None:
    reference = {"total_ms": [1.0, 2.0, 3.0]}
    found = {
        "bytes": 8_000_000,
        "is_pinned": True,
        "park": {"issue_ms": [0.5, 0.1, 0.3], "total_ms": [4.0, 4.0, 9.0], "n_copies": [7, 7, 7]},
        "restore": {"issue_ms": [0.5], "total_ms": [2.0], "n_copies": [7]},
        "restore_in_steps": {"issue_ms": [0.5], "total_ms": [2.5], "n_copies": [7]},
        **{f"{way}_{to}_reference": reference for way in ("contiguous", "synchronous") for to in ("park", "restore")},
    }
    rows = summaries({"patterns": {"comb": found}})["comb"]
    assert rows["park"] == {
        "bytes": 8_000_000,
        "gb_s": 2.0,
        "ratio_to_contiguous": 0.5,
        "issue_ms": 0.3,
        "issue_worst_ms": 0.5,
        "total_ms": 4.0,
        "total_worst_ms": 9.0,
        "n_copies": 7,
    }
    assert (rows["restore"]["ratio_to_contiguous"], rows["restore_in_steps"]["ratio_to_contiguous"]) == (1.0, 0.8)
    assert rows["synchronous_park_reference"]["ratio_to_contiguous"] == 1.0


def test_what_a_machine_without_the_drivers_tool_ran_on_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine.driver_version() is None
    assert machine.gpu_names() == []


def run(native_tests: NativeTests, model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [
        ROOT / "scripts/bench",
        "transfers",
        "--model",
        model,
        "--cells",
        str(N_CELLS),
        "--repeats",
        "2",
        *words,
    ]
    env = {**os.environ, "GGML_BACKEND_PATH": str(native_tests.simdev), "OMP_THREAD_LIMIT": "1"}
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_on_a_simulated_device_no_pattern_takes_more_calls_than_one_run(
    native_tests: NativeTests, smollm2_path: Path, tmp_path: Path
) -> None:
    numbers, picture = tmp_path / "transfers.json", tmp_path / "transfers.svg"
    done = run(native_tests, smollm2_path, "--staging", "16", "--json", str(numbers), "--plot", str(picture))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(numbers.read_text())
    assert found["device"] == ["simulated device 0"]
    assert found["equal_after_restore"] == dict.fromkeys(("f32", "f16", "bf16", "q8_0", "q5_1", "q4_0"), True)
    assert [found["patterns"][pattern]["restore_in_steps"]["is_prefetched"] for pattern in ("comb", "broken")] == [1, 1]
    for direction in ("park", "restore", "restore_in_steps"):
        counts = [found["patterns"][pattern][direction] for pattern in ("comb", "broken", "one_run")]
        assert [(row["n_graphs"], row["n_copies"]) for row in counts] == [(1, counts[-1]["n_copies"])] * 3
        assert all(0 < row["post_ms"] <= row["issue_ms"] <= row["total_ms"] for row in counts)
    assert [found["patterns"][pattern]["park"]["frees_on_issue"] for pattern in ("comb", "broken")] == [1, 1]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_without_staging_memory_the_broken_pattern_takes_more_copies(
    native_tests: NativeTests, smollm2_path: Path, tmp_path: Path
) -> None:
    numbers = tmp_path / "transfers.json"
    done = run(native_tests, smollm2_path, "--staging", "0", "--types", "f16", "--json", str(numbers))
    assert done.returncode == 0, done.stdout + done.stderr
    parks = {pattern: ways["park"] for pattern, ways in json.loads(numbers.read_text())["patterns"].items()}
    assert parks["broken"]["n_copies"] > parks["one_run"]["n_copies"]
    assert {park["n_graphs"] for park in parks.values()} == {0}
