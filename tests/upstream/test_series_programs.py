"""The test programs that the series adds to llama.cpp, run on a dummy model of every architecture, as upstream does.

test_touched_programs.py runs those of upstream's own that the series touches.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from build_support.layout import of_this_clone
from build_support.patch_programs import new_tests
from tests.native.conftest import NativeTests, must, run
from tests.upstream.conftest import Compile, compile_command, source_of

pytestmark = pytest.mark.slow

WITHOUT_MODEL = (
    "test-backend-buffer-2d",
    "test-backend-event-query",
    "test-backend-host-pin",
    "test-io-batch",
    "test-io-chunks",
    "test-io-gather",
    "test-io-host",
    "test-kv-cells",
    "test-kv-pos-cells",
    "test-logits-top",
    "test-program-options",
    "test-seq-staging",
)
# it takes a folder, and has a test of its own
WITH_FOLDER = ("test-backend-search-path",)
# those take models, and each has a test of its own
WITH_MODELS = (
    "test-graph-width",
    "test-host-memory",
    "test-memory-async-copy",
    "test-memory-n-cells",
    "test-outputs-threads",
    "test-state-seq-copy",
)

# Plain, window, MLA, hybrid, recurrent. All architectures take minutes: `test-state-seq-copy FOLDER`.
ONE_OF_EACH_MEMORY = ("llama-dense", "gemma3-dense", "deepseek2-moe", "qwen3next-moe", "mamba-dense")
N_KV_TYPES = 6


def test_every_program_that_the_series_adds_is_run_here() -> None:
    assert sorted(new_tests(of_this_clone().tree)) == sorted([*WITHOUT_MODEL, *WITH_FOLDER, *WITH_MODELS])


@pytest.mark.parametrize("device", ["cpu", "simdev"])
@pytest.mark.parametrize("name", WITHOUT_MODEL)
def test_a_program_that_needs_no_model_ends_well(
    compiled: Compile, native_tests: NativeTests, name: str, device: str
) -> None:
    done = run([compiled(name)], {"GGML_BACKEND_PATH": str(native_tests.simdev)} if device == "simdev" else {})
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_only_the_folder_that_a_program_names_is_searched_for_backends(compiled: Compile, tmp_path: Path) -> None:
    planted = tmp_path / "libggml-cuda-planted.so"
    command = compile_command(source_of("test-backend-search-path"))
    must([*command, "-DPLANTED_BACKEND", "-shared", "-fPIC", "-o", planted])
    done = run([compiled("test-backend-search-path"), tmp_path])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "OK\n"


def test_cells_are_counted_right_in_every_kind_of_memory(compiled: Compile, dummy_models: Path) -> None:
    done = subprocess.run([compiled("test-memory-n-cells"), dummy_models], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") > 100
    assert ": FAIL" not in said


@pytest.mark.parametrize("device", ["cpu", "simdev"])
def test_a_batch_as_wide_as_one_before_gets_the_same_graph_and_all_widths_take_little_memory(
    compiled: Compile, dummy_models: Path, native_tests: NativeTests, device: str
) -> None:
    env = {"GGML_BACKEND_PATH": str(native_tests.simdev)} if device == "simdev" else {}
    # the second one's graphs have room for 82,000 nodes
    models = [dummy_models / "llama-dense.gguf", dummy_models / "qwen3next-moe.gguf"]
    done = run([compiled("test-graph-width"), *models], env)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert done.stdout.count("OK") == 1


def test_several_threads_read_the_outputs_of_a_batch(compiled: Compile, dummy_models: Path) -> None:
    done = run([compiled("test-outputs-threads"), dummy_models / "llama-dense.gguf"], {})
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def test_each_kind_of_memory_says_whether_it_can_be_copied_asynchronously(
    compiled: Compile, dummy_models: Path
) -> None:
    command = [compiled("test-memory-async-copy"), dummy_models]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert said.count("OK, can be copied") > 200
    assert said.count("OK, can be staged") > 20
    assert said.count("OK, a part of the memory is recurrent") > 0


def seq_copy(program: Path, models: Path, simdev: Path, n_devices: int) -> str:
    """What the test of asynchronous copies says on simdev; it must end well."""
    env = {"GGML_BACKEND_PATH": str(simdev), "SIMDEV_DEVICES": str(n_devices), "OMP_THREAD_LIMIT": "1"}
    done = run([program, models], env)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert ": FAIL" not in said
    return said


def test_asynchronous_copies_equal_the_synchronous_calls_in_every_kind_of_memory(
    compiled: Compile, dummy_models: Path, native_tests: NativeTests, tmp_path: Path
) -> None:
    few = tmp_path / "models"
    few.mkdir()
    for name in ONE_OF_EACH_MEMORY:
        (few / f"{name}.gguf").symlink_to(dummy_models / f"{name}.gguf")
    said = seq_copy(compiled("test-state-seq-copy"), few, native_tests.simdev, n_devices=1)
    for staging_bytes in (0, 16 << 20, 24 << 10):
        assert said.count(f"staging = {staging_bytes}, unified = 1: OK") >= 3
        assert said.count(f"staging = {staging_bytes}, unified = 0: OK") >= 3
    # those two with a recurrent part: only through staging memory, and only where that part fits at once
    reason = "a part of the memory is recurrent, which takes staging memory"
    assert said.count(f"staging = 0, unified = 1: NULL, {reason}") == 2
    assert said.count(f"staging = {16 << 20}, unified = 1: OK") == len(ONE_OF_EACH_MEMORY)
    assert said.count(f"staging = {24 << 10}, unified = 1: REFUSED") == 2
    # the rest of a hybrid one in chunks
    assert said.count("recurrent part at once: OK") == 1


@pytest.mark.parametrize("n_devices", [1, 2])
def test_asynchronous_copies_keep_every_bit_of_every_type(
    compiled: Compile, dummy_models: Path, native_tests: NativeTests, n_devices: int
) -> None:
    model = dummy_models / "llama-dense.gguf"
    said = seq_copy(compiled("test-state-seq-copy"), model, native_tests.simdev, n_devices)
    for kv_type in ("f32", "f16", "bf16", "q8_0", "q5_1", "q4_0"):
        assert said.count(f": {kv_type}, staging") == (8 if kv_type == "f16" else 6)
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") == N_KV_TYPES * 3
    # a transposed V
    assert said.count("no flash attention: OK") == 2


def test_asynchronous_copies_keep_every_bit_of_a_latent_of_every_type(
    compiled: Compile, dummy_models: Path, native_tests: NativeTests
) -> None:
    model = dummy_models / "deepseek2-moe.gguf"  # caches K only, whose rows are shifted in part
    said = seq_copy(compiled("test-state-seq-copy"), model, native_tests.simdev, n_devices=1)
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") == N_KV_TYPES * 3


def test_asynchronous_copies_run_on_a_fake_device_where_no_other_copies_asynchronously(
    compiled: Compile, dummy_models: Path
) -> None:
    done = run([compiled("test-state-seq-copy"), dummy_models / "llama-dense.gguf"], {"OMP_THREAD_LIMIT": "1"})
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-2000:]
    assert ": FAIL" not in said
    assert said.count("unified = 1: OK") == said.count("unified = 0: OK") == N_KV_TYPES * 3


@pytest.mark.parametrize("n_devices", [1, 2])
def test_host_memory_is_page_locked_in_place(
    compiled: Compile, dummy_models: Path, native_tests: NativeTests, n_devices: int
) -> None:
    env = {"GGML_BACKEND_PATH": str(native_tests.simdev), "SIMDEV_DEVICES": str(n_devices), "OMP_THREAD_LIMIT": "1"}
    for program, arguments in (
        ("test-backend-host-pin", []),
        ("test-host-memory", [dummy_models / "llama-dense.gguf"]),
    ):
        done = run([compiled(program), *arguments], env)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        assert done.stdout.count(": OK") == (1 if not arguments else 1 + n_devices)
        assert "SKIP" not in done.stdout
