"""Upstream's own tests of what the series touches. On the CPU and on simdev: rows, saved states, fragments, threads. On
no device: what reads grammars, schemas and texts.

Cut to what CI has time for: of test-backend-ops the rows in the type that a gather moves, and not the tensors of more
than 50 MiB; of test-save-load-state one model for each kind of memory; few threads and few tokens. scripts/gpu runs the
first three in full on a GPU.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests, run
from tests.upstream.conftest import Compile

pytestmark = pytest.mark.slow

# plain, window, MLA, hybrid, recurrent
ONE_OF_EACH_MEMORY = ("llama-dense", "gemma3-dense", "deepseek2-moe", "qwen3next-moe", "mamba-dense")
READERS = ("test-grammar-integration", "test-grammar-parser", "test-json-schema-to-grammar", "test-unicode")
ROWS = "^(type=f32,|type_src=f32,type_dst=f32,)(?!.*(m=80000|be1=700))"


class Device:
    """Where a program runs: with the CPU alone, or with simdev too, whose trace then tells that it had work."""

    def __init__(self, name: str, simdev: Path, trace: Path) -> None:
        self.name, self.trace = name, trace
        # The programs start a thread for each core, which wait for one another spinning.
        self.env = {"OMP_THREAD_LIMIT": "1"}
        if name == "simdev":
            self.env |= {"GGML_BACKEND_PATH": str(simdev), "SIMDEV_TRACE_FILE": str(trace)}

    def run(self, *command: str | Path) -> str:
        """What the program said; it must have ended well and, on simdev, have used it."""
        done = run([*command], self.env)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        if self.name == "simdev":
            kinds = Counter(json.loads(line)["kind"] for line in self.trace.read_text(encoding="ascii").splitlines())
            assert kinds["graph"] > 0, kinds
        return done.stdout + done.stderr


@pytest.fixture(params=["cpu", "simdev"])
def device(request: pytest.FixtureRequest, native_tests: NativeTests, tmp_path: Path) -> Device:
    return Device(request.param, native_tests.simdev, tmp_path / "trace.jsonl")


@pytest.mark.parametrize("name", READERS)
def test_what_reads_a_body_reads_it_as_upstream_does(compiled: Compile, name: str) -> None:
    done = run([compiled(name)], {})
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_rows_are_read_and_written_as_the_cpu_does(compiled: Compile, device: Device) -> None:
    only = ["-b", "CPU"] if device.name == "cpu" else ["-b", "SIM0"]
    said = device.run(compiled("test-backend-ops"), "-o", "GET_ROWS,SET_ROWS", "-p", ROWS, *only)
    assert "33/33 tests passed" in said


def test_a_saved_state_continues_in_each_kind_of_memory(
    compiled: Compile, device: Device, dummy_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "models"
    few.mkdir()
    for name in ONE_OF_EACH_MEMORY:
        (few / f"{name}.gguf").symlink_to(dummy_models / f"{name}.gguf")
    monkeypatch.chdir(tmp_path)  # the program leaves a file where it runs
    said = device.run(compiled("test-save-load-state"), "--models", few, "-t", "1")
    assert said.count(".gguf ") == len(ONE_OF_EACH_MEMORY)
    assert said.count("PASS") > len(ONE_OF_EACH_MEMORY)
    assert "FAIL" not in said


def test_a_fragmented_restore_leaves_its_neighbours_untouched(
    compiled: Compile, device: Device, smollm2_path: Path
) -> None:
    device.run(compiled("test-state-restore-fragmented"), "-m", smollm2_path, "-t", "1", "-ngl", "99")


def test_contexts_on_threads_of_their_own_decode_side_by_side(
    compiled: Compile, device: Device, smollm2_path: Path
) -> None:
    small = ["-np", "2", "-n", "8", "-t", "1", "-c", "128", "-ngl", "99", "-p", "The meaning of life is"]
    said = device.run(compiled("test-thread-safety"), "-m", smollm2_path, *small)
    assert "All threads finished without errors" in said
