"""`scripts/gpu run` with stand-ins for what it would build: what it covers, says, and when it fails. Needs no GPU."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu"
TESTS = (
    *(
        "test-backend-event-query",
        "test-backend-buffer-2d",
        "test-backend-host-pin",
        "test-io-batch",
        "test-io-chunks",
        "test-io-gather",
        "test-graph-width",
        "test-llama-archs",
    ),
    *(
        "test-io-host",
        "test-host-memory",
        "test-seq-staging",
        "test-state-restore-fragmented",
        "test-memory-n-cells",
        "test-state-seq-copy",
    ),
    *("test-save-load-state", "test-backend-ops"),
)
LAYOUT = '{"hash": "1", "save_median_ms": 2.0, "restore_median_ms": 3.0}'
BENCH = f'echo \'{{"comb": {LAYOUT}, "broken": {LAYOUT}, "one_run": {LAYOUT}}}\''


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n", encoding="ascii")
    path.chmod(0o755)


@dataclass(frozen=True)
class Machine:
    """A folder with the packed tree, what was built of it, and the vendor's programs."""

    folder: Path

    def pack_built(self, tree: bytes, states: str = "echo same") -> None:
        (self.folder / "packed").mkdir(exist_ok=True)
        (self.folder / "packed" / "tree.tar.xz").write_bytes(b"the tree")
        made = self.folder / "made"
        for test in TESTS:
            program(made / "build" / "bin" / test, "exit 0")
        program(made / "build" / "bin" / "state_io_bench", BENCH)
        program(made / "build" / "bin" / "state-bytes", states)
        (made / "tree.sha256").write_text(f"{hashlib.sha256(tree).hexdigest()}  -\n", encoding="ascii")
        built = self.folder / "built"
        built.mkdir(exist_ok=True)
        subprocess.run(["tar", "-cJf", built / "built.tar.xz.aa", "-C", made, "."], check=True)

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        program(self.folder / "bin" / "nvidia-smi", "echo a card, 1.2")
        program(self.folder / "bin" / "compute-sanitizer", "exit 0")
        (self.folder / "shape.gguf").touch()
        env = os.environ | {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "WORK": str(self.folder / "work")}
        env |= {"SHAPE_MODEL": str(self.folder / "shape.gguf"), **variables}
        command: list[str | Path] = [SCRIPT, "run", self.folder / "packed", self.folder / "out", self.folder / "built"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "out" / "state-io.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_run_in_which_all_is_well_says_what_it_covered(machine: Machine) -> None:
    machine.pack_built(b"the tree")
    done = machine.run()
    assert done.returncode == 0, done.stdout + done.stderr
    checks = machine.result()["checks"]
    assert checks["cells"] == checks["memcheck-fragmented"] == "exit 0"
    assert checks["states of mamba-dense, gathered against base"] == "equal"
    assert machine.result()["same_bytes"]
    assert (machine.folder / "out" / "logs.tar.xz").exists()


def test_a_state_that_differs_fails_the_run_and_is_named(machine: Machine) -> None:
    machine.pack_built(b"the tree", states="[[ $LD_LIBRARY_PATH == */merged:* && $1 == */gemma* ]] && echo a || echo b")
    done = machine.run()
    assert done.returncode == 1
    assert machine.result()["checks"]["states of gemma3-dense, merged against base"] == "differ"
    assert machine.result()["checks"]["states of gemma3-dense, gathered against base"] == "equal"


def test_a_state_that_even_the_unpatched_library_cannot_save_fails_the_run(machine: Machine) -> None:
    machine.pack_built(b"the tree", states="exit 3")
    assert machine.run().returncode == 1
    assert machine.result()["checks"]["states of llama-dense, merged against base: not saved"] == "exit 3"


def test_what_there_was_no_time_for_fails_the_run_and_is_named(machine: Machine) -> None:
    machine.pack_built(b"the tree")
    done = machine.run(LIMIT_S="0")
    assert done.returncode == 1
    checks = machine.result()["checks"]
    assert checks["cells"] == checks["states of llama-dense"] == checks["state-io"] == "not run, no time left"
    assert not machine.result()["same_bytes"]


def test_what_was_built_of_another_tree_is_refused(machine: Machine) -> None:
    machine.pack_built(b"another tree")
    done = machine.run()
    assert done.returncode != 0
    assert "was built from another tree" in done.stderr
    assert "leave BUILT out" in done.stderr


def test_an_unknown_step_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    command: list[str | Path] = [SCRIPT.with_name("gpu-server"), "run", tmp_path, tmp_path / "out", "stall", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    steps = "tests stall transfers prompt_cache disk memcheck width throughput slot_states"
    assert done.stderr == f"unknown step nonsense; steps: {steps}\n"
    assert list((tmp_path / "out").iterdir()) == []
