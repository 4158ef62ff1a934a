"""Transfers of the bindings in this process, with model and cache on simdev. Collected only where it is to be loaded:

GGML_BACKEND_PATH=build/native-tests/libggml-simdev.so .venv/bin/python -m pytest tests/native/bindings_on_simdev
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyggml import Batch, Context, ContextParams, FlashAttention, Model, Transfer
from tests.native.simdev_library import IGNORED_WITHOUT_SIMDEV, SimdevLibrary, first_layers
from tests.native.simdev_library import simdev_fixture as simdev_fixture

collect_ignore_glob = IGNORED_WITHOUT_SIMDEV

N_LAYERS = 2
N_SEQUENCES = 3
MakeContext = Callable[..., Context]


@pytest.fixture(scope="session")
def model_path(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return first_layers(smollm2_path, tmp_path_factory, N_LAYERS)


@pytest.fixture
def model(simdev: SimdevLibrary, model_path: Path) -> Iterator[Model]:
    assert simdev.n_held == 0
    with Model(model_path, n_gpu_layers=99) as loaded:
        yield loaded


@pytest.fixture
def make_context(model: Model) -> Iterator[MakeContext]:
    """Contexts of three sequences, closed afterwards."""
    made: list[Context] = []

    def make(**more: object) -> Context:
        params = {"n_ctx": 256, "n_seq_max": N_SEQUENCES, "n_threads": 1, "n_threads_batch": 1, **more}
        made.append(Context(model, ContextParams(flash_attention=FlashAttention.ON, **params)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture
def context(make_context: MakeContext) -> Context:
    """Three sequences that took their cells in turn, 20 each."""
    made = make_context()
    for first in range(0, 20, 4):
        for seq_id in range(N_SEQUENCES):
            go_on(made, seq_id, first, 4)
    return made


def go_on(context: Context, seq_id: int, first: int, n_tokens: int) -> None:
    """Decode the sequence's next tokens."""
    tokens = [500 + 31 * seq_id + i for i in range(first, first + n_tokens)]
    context.decode(Batch.from_arrays(tokens, range(first, first + n_tokens), seq_id))


@pytest.fixture
def staged(make_context: MakeContext) -> Context:
    """With staging memory for many states, and 20 cells of sequence 0."""
    made = make_context(n_bytes_staging=1 << 20)
    go_on(made, 0, 0, 20)
    return made


@pytest.fixture
def transfer(context: Context) -> Iterator[Transfer]:
    with Transfer(context) as made:
        yield made


@pytest.fixture
def held(transfer: Transfer, simdev: SimdevLibrary) -> Iterator[Transfer]:
    """A save of sequence 0 that is in flight until simdev releases it."""
    hold(simdev, transfer)
    yield transfer
    simdev.release()  # before anybody waits for it


def hold(simdev: SimdevLibrary, transfer: Transfer, seq_id: int = 0) -> None:
    simdev.set("hold", 1)
    transfer.save(seq_id)
    simdev.set("hold", 0)
