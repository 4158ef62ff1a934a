"""Random calls on a context with asynchronous copies and on one with the synchronous calls, for every kind of memory.

A part of what `scripts/soak` goes on with: `SEQ_COPY_SEED` and `SEQ_COPY_STEPS` choose other calls, and more of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.native.conftest import NativeTests
from tests.native.simdev_library import first_layers
from tests.pyggml.tiny_models import (
    write_chunked_model,
    write_recurrent_model,
    write_window_model,
    write_windowed_hybrid_model,
)

PROGRAM = "test-seq-copy-random"
CASES = re.findall(r"^CASE\((\w+)\)", (Path(__file__).parent / f"{PROGRAM}.cpp").read_text("utf-8"), re.MULTILINE)
SEEDS = (1, 2)
N_LAYERS = 2

MEMORIES: dict[str, Callable[[Path], Path]] = {
    "iswa": write_window_model,
    "window": partial(write_window_model, has_full_layers=False),
    "chunked-window": write_chunked_model,
    "hybrid-with-window": write_windowed_hybrid_model,
    "recurrent": write_recurrent_model,
}


def walk(native_tests: NativeTests, case: str, model: Path, seed: int, kv_type: str = "f16") -> None:
    env = {"SEQ_COPY_MODEL": str(model), "SEQ_COPY_TYPE": kv_type, "SEQ_COPY_SEED": str(seed)}
    chosen = {name: os.environ[name] for name in ("SEQ_COPY_SEED", "SEQ_COPY_STEPS") if name in os.environ}
    done = native_tests.run_case(PROGRAM, case, env | chosen)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_kind_of_memory(native_tests: NativeTests, memory: str, case: str, tmp_path: Path) -> None:
    model = MEMORIES[memory](tmp_path / "tiny.gguf")
    for seed in SEEDS:
        walk(native_tests, case, model, seed)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "bf16", "q8_0", "q5_1", "q4_0"])
def test_every_type_of_the_cache(
    native_tests: NativeTests, kv_type: str, smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = first_layers(smollm2_path, tmp_path_factory, N_LAYERS)
    for seed, case in enumerate(CASES):
        walk(native_tests, case, model, seed, kv_type)
