"""The engine in this process, with its model and cache on simdev. Collected only where simdev is to be loaded:

GGML_BACKEND_PATH=build/native-tests/libggml-simdev.so .venv/bin/python -m pytest tests/native/engine_on_simdev
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.engine_on_simdev.parks import HeldParks, RowWatch
from tests.native.simdev_library import SimdevLibrary

collect_ignore_glob = [] if "simdev" in os.environ.get("GGML_BACKEND_PATH", "") else ["test_*.py"]

N_LAYERS = 3


@pytest.fixture(scope="session")
def model(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layers of SmolLM2: the point is whose bytes are where, not what the text says."""
    from tests.native.short_model import shorten  # needs gguf, which a machine with another device may not have

    path = tmp_path_factory.mktemp("model") / "short.gguf"
    shorten(smollm2_path, path, N_LAYERS)
    return path


@pytest.fixture
def simdev() -> Iterator[SimdevLibrary]:
    """With every knob that a test may set as it is by default, before and after; no copy met freed memory."""
    library = SimdevLibrary()
    library.reset()
    n_faults = library.n_faults
    yield library
    library.reset()
    assert library.n_faults == n_faults, "a copy touched memory that was freed"


@pytest.fixture
def held_parks(simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> HeldParks:
    """Parks of the slots that the test names are in flight until it releases them."""
    return HeldParks(simdev, monkeypatch)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> RowWatch:
    """Compares each sequence's rows before its park with those after its restore."""
    return RowWatch(monkeypatch)
