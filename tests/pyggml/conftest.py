"""One loaded model for all tests of the bindings, contexts that close themselves, and short greedy conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pyggml import Batch, Context, ContextParams, Model
from pyggml.ffi import lib
from pyggml.model import start_backend

MakeContext = Callable[..., Context]
Tokens = npt.NDArray[np.int32]


@pytest.fixture(scope="module", autouse=True)
def _log_is_ours() -> None:
    """A server that a test of this process started has taken llama.cpp's log over."""
    start_backend()
    lib.pyggml_log_install()


@pytest.fixture(scope="session")
def model(smollm2_path: Path) -> Iterator[Model]:
    with Model(smollm2_path, n_gpu_layers=0) as model:
        yield model


@pytest.fixture
def make_context(model: Model) -> Iterator[MakeContext]:
    """Makes contexts of the shared model from keyword arguments of ContextParams.

    Small, and on one thread, so that tests that run at the same time do not wait busily for each other.
    """
    made: list[Context] = []

    def make(of: Model = model, **params: object) -> Context:
        defaults: dict[str, object] = {"n_ctx": 256, "n_seq_max": 4, "n_threads": 1, "n_threads_batch": 1}
        context = Context(of, ContextParams(**(defaults | params)))  # type: ignore[arg-type]
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


@pytest.fixture
def context(make_context: MakeContext) -> Context:
    """256 cells shared by 4 sequences."""
    return make_context()


@pytest.fixture(scope="session")
def story(model: Model) -> Tokens:
    return model.vocab.tokenize("Once upon a time there was a small robot who wanted to learn how to paint the sea.")


@pytest.fixture(scope="session")
def recipe(model: Model) -> Tokens:
    return model.vocab.tokenize("To bake good bread at home you need flour, water, salt and a little patience.")


@pytest.fixture(scope="session")
def decode() -> Callable[[Context, Tokens, int], None]:
    """Decodes tokens at the end of a sequence, with the last one's logits."""

    def run(context: Context, tokens: Tokens, seq_id: int) -> None:
        start = context.seq_pos_max(seq_id)
        first = 0 if start is None else start + 1
        context.decode(Batch.from_arrays(tokens, range(first, first + len(tokens)), seq_id))

    return run


@pytest.fixture(scope="session")
def continue_greedily() -> Callable[[Context, int, int, int], list[int]]:
    """From a token, the next `n` most likely tokens of a sequence."""

    def run(context: Context, seq_id: int, token: int, n: int) -> list[int]:
        chosen = []
        for _ in range(n):
            end = context.seq_pos_max(seq_id)
            context.decode(Batch.from_arrays([token], [0 if end is None else end + 1], seq_id))
            token = int(context.logits().argmax())
            chosen.append(token)
        return chosen

    return run
