"""Whatever is wrong with a body is answered 4xx: 500 is for faults of the server. Thousands of wrong bodies show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.body_sweep import EMBEDDING, GENERATING, RERANKING, counts, sweep, table
from tests.e2e.conftest import StartServer
from tests.e2e.program import ServerProcess

SMALL = ("-c", "256", "-n", "4", "-np", "2")  # a wrong limit must not generate much


@pytest.fixture(scope="module")
def small(narrow_path: Path) -> tuple[str, ...]:
    """The flags of a server whose answers do not matter."""
    return ("-m", str(narrow_path), *SMALL)


@pytest.fixture(scope="module")
def server(
    start_ours: StartServer, small: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("slots")
    with start_ours(*small, "--slot-save-path", str(folder), "--props") as started:
        yield started


def assert_no_fault_of_ours(server: ServerProcess, bodies: dict[str, dict[str, Any]]) -> None:
    found = sweep(server.url, bodies)
    faults = [
        f"{path} {body[:300]!r}: {status} {answer[:200]}"
        for path, answers in found.items()
        for status, body, answer in answers
        if status == 0 or (status >= 500 and status != 501)
    ]
    assert not faults, "\n".join([f"{len(faults)} faults, the first of them:", *faults[:20], table(counts(found))])


@pytest.mark.slow
@pytest.mark.parametrize("path", GENERATING)
def test_a_wrong_body_is_no_fault_of_the_server(server: ServerProcess, path: str) -> None:
    assert_no_fault_of_ours(server, {path: GENERATING[path]})


@pytest.mark.slow
def test_a_wrong_body_for_embeddings_is_none_either(start_ours: StartServer, small: tuple[str, ...]) -> None:
    with start_ours(*small, "--embeddings") as server:
        assert_no_fault_of_ours(server, EMBEDDING)


@pytest.mark.slow
def test_a_wrong_body_for_reranking_is_none_either(start_ours: StartServer, small: tuple[str, ...]) -> None:
    with start_ours(*small, "--reranking") as server:
        assert_no_fault_of_ours(server, RERANKING)
