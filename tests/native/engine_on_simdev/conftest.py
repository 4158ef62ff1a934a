"""The engine in this process, with its model and cache on simdev. Collected only where simdev is to be loaded:

GGML_BACKEND_PATH=build/native-tests/libggml-simdev.so .venv/bin/python -m pytest tests/native/engine_on_simdev
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.engine_on_simdev.background_copies import HeldCopies
from tests.native.engine_on_simdev.parks import HeldParks, RowWatch
from tests.native.simdev_library import IGNORED_WITHOUT_SIMDEV, SimdevLibrary, first_layers
from tests.native.simdev_library import simdev_fixture as simdev_fixture

collect_ignore_glob = IGNORED_WITHOUT_SIMDEV

N_LAYERS = 3


@pytest.fixture(scope="session")
def model(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return first_layers(smollm2_path, tmp_path_factory, N_LAYERS)


@pytest.fixture
def held_parks(simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> HeldParks:
    """Parks of the slots that the test names are in flight until it releases them."""
    return HeldParks(simdev, monkeypatch)


@pytest.fixture
def held(simdev: SimdevLibrary, monkeypatch: pytest.MonkeyPatch) -> HeldCopies:
    """Copies to and from the prompt cache and files are in flight until it releases them, once the test says `hold`."""
    return HeldCopies(simdev, monkeypatch)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> RowWatch:
    """Compares each sequence's rows before its park with those after its restore."""
    return RowWatch(monkeypatch)
