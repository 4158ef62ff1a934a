"""A real model with its weights and its KV cache on simdev says what it says on the CPU, bit for bit."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests, run

PROGRAM = Path(__file__).parent / "greedy_program.py"
ROOT = Path(__file__).parents[2]
ON_CPU, ALL_LAYERS = "0", "99"


def speak(model: Path, n_gpu_layers: str, env: dict[str, str]) -> dict[str, object]:
    done = run([sys.executable, PROGRAM, model, n_gpu_layers], {"PYTHONPATH": str(ROOT), **env})
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, object] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def on_cpu(smollm2_path: Path) -> dict[str, object]:
    return speak(smollm2_path, ON_CPU, {})


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"devices": 2},
        {"devices": 2, "late": 0},
        {"devices": 3, "events": 0, "device_ids": 1},
        {"async": 0},
        {"copy_2d": 0, "host_buffer": 0},
        {"pageable_above_bytes": 0, "pageable_blocks": 1},
        {"event_query": 0, "max_buffer_bytes": 40_000_000},
    ],
    ids=lambda knobs: ",".join(f"{name}={value}" for name, value in knobs.items()) or "defaults",
)
def test_tokens_logits_and_state_are_those_of_the_cpu(
    native_tests: NativeTests, smollm2_path: Path, tmp_path: Path, on_cpu: dict[str, object], knobs: dict[str, int]
) -> None:
    trace_file = tmp_path / "trace.jsonl"
    env = {f"SIMDEV_{name.upper()}": str(value) for name, value in knobs.items()}
    env |= {"GGML_BACKEND_PATH": str(native_tests.simdev), "SIMDEV_TRACE_FILE": str(trace_file)}
    assert speak(smollm2_path, ALL_LAYERS, env) == on_cpu

    entries = [json.loads(line) for line in trace_file.read_text(encoding="ascii").splitlines()]
    assert not [entry for entry in entries if entry["fault"] or entry["done"] == 0]
    graphs = Counter(entry["device"] for entry in entries if entry["kind"] == "graph")
    assert sorted(graphs) == list(range(knobs.get("devices", 1)))
    names = {entry["name"] for entry in entries if entry["kind"] in ("set", "get")}
    assert {"blk.0.attn_q.weight", "blk.29.ffn_down.weight"} <= names
    assert any(name.startswith("cache_k_l0") for name in names)
