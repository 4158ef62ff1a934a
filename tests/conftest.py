"""The real model's file, the markers that follow from where a test is, and the count of the planner's random traces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from build_support.tools import require_compiler
from tests.planner.trace_count import note_trace, passes_of_traces, told

MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
TESTS = Path(__file__).parent
LEAVE_MARK = """
#include <stdlib.h>
#include <stdio.h>
__attribute__((constructor)) static void leave_mark(void) { fclose(fopen(getenv("MARK"), "w")); }
"""
NEED_NOTHING_BUILT = {"build", "docs", "download", "planner", "ray", "router", "web"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what a test needs, so that nobody has to remember it: `built`, `e2e`, `model`. Where several processes run
    the files, those with a slow test come first: none of them begins when all others have ended."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder == "e2e":
            item.add_marker(pytest.mark.e2e)
        if "smollm2_path" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.model)
        if folder not in NEED_NOTHING_BUILT or item.get_closest_marker("model"):
            item.add_marker(pytest.mark.built)
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct: the file that PYGGML_TEST_MODEL names, else the one that ./scripts/test fetches."""
    path = Path(os.environ.get("PYGGML_TEST_MODEL") or Path(__file__).parents[1] / ".models" / MODEL_NAME)
    if not path.is_file():
        pytest.fail(f"{path} is missing: run ./scripts/test, which fetches it, or set PYGGML_TEST_MODEL to the file")
    return path


@pytest.fixture(scope="session")
def narrow_path(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 of a third of its width: its states are as large and its vocabulary is the same, at a tenth of the work.
    For tests that compare texts or count them, and do not ask whether they make sense."""
    from tests.native.short_model import narrow  # needs gguf, as above

    path = tmp_path_factory.mktemp("narrow") / "narrow.gguf"
    narrow(smollm2_path, path)
    return path


@pytest.fixture(scope="session")
def draft_path(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model for SmolLM2: 27 of its 30 layers. About a third of its guesses are right."""
    from tests.native.short_model import shorten  # needs gguf, which a machine with another device may not have

    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    shorten(smollm2_path, path, n_layers=27)
    return path


@pytest.fixture
def planted_backends(tmp_path: Path) -> Path:
    """A folder in which somebody put libraries with the names of backends; a loaded one leaves the file `mark`."""
    source = tmp_path / "planted.c"
    source.write_text(LEAVE_MARK)
    for name in ("libggml-cuda-planted.so", "libggml-cpu.so", "libggml-cpu-haswell.so"):
        subprocess.run(
            [require_compiler(os.environ), "-shared", "-fPIC", str(source), "-o", str(tmp_path / name)], check=True
        )
    return tmp_path


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its traces to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["passes_of_traces"] = passes_of_traces()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's traces, if it came to its end."""
    for n_passes in getattr(node, "workeroutput", {}).get("passes_of_traces", ()):
        note_trace(n_passes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many traces were tried."""
    if said := told():
        terminalreporter.write_line(said)
