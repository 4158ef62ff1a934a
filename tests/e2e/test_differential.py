"""Generated requests get the same answers from both servers, with preemption off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.comparing import ask_both, unmeant_differences
from tests.e2e.conftest import StartServer
from tests.e2e.generated_requests import (
    CHAT_VALUES,
    TOKENIZE_VALUES,
    VALUES,
    GeneratedRequest,
    each_value_alone,
    mixed,
    parameters_in_readme,
)
from tests.e2e.program import ServerProcess

N_MIXED = 14


@pytest.fixture(scope="module")
def servers(
    start_ours: StartServer, start_stock: StartServer, narrow_path: Path
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Ours and stock on a model that says nothing of sense, and both the same."""
    model = ("-m", str(narrow_path))
    with ExitStack() as stack:
        yield stack.enter_context(start_ours(*model, "--preempt-ram", "0")), stack.enter_context(start_stock(*model))


def found_differences(
    ours: ServerProcess, stock: ServerProcess, requests: Iterator[GeneratedRequest]
) -> tuple[int, list[str]]:
    """How many requests were compared, and one entry for each that was answered differently."""
    n_compared, found = 0, []
    for request in requests:
        n_compared += 1
        lines = list(unmeant_differences(*ask_both(ours, stock, "POST", request.path, request.body)))
        if lines:
            found.append(f"{request}:\n    " + "\n    ".join(lines[:5]))
    return n_compared, found


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("POST `/completion`", VALUES),
        ("POST `/v1/chat/completions`:", CHAT_VALUES),
        ("POST `/tokenize`", TOKENIZE_VALUES),
    ],
)
def test_every_parameter_of_the_readme_has_values(heading: str, known: dict[str, object]) -> None:
    described = parameters_in_readme(heading)
    assert described
    assert described - set(known) == set()


def test_each_value_of_each_parameter_gets_the_same_answer(servers: tuple[ServerProcess, ServerProcess]) -> None:
    n_compared, found = found_differences(*servers, each_value_alone())
    assert n_compared > 200
    assert not found, "\n".join(found)


def test_mixed_parameters_get_the_same_answer(servers: tuple[ServerProcess, ServerProcess]) -> None:
    n_compared, found = found_differences(*servers, mixed(N_MIXED))
    assert n_compared == N_MIXED
    assert not found, "\n".join(found)
