"""The engine's loop on a real model: the line moves, and a fault in one request stays with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.harness import EngineHarness


@pytest.fixture(scope="module")
def one_slot(smollm2_path: Path) -> Iterator[EngineHarness]:
    with EngineHarness(["-m", str(smollm2_path), "-c", "256", "-np", "1", "-t", "1"]) as harness:
        yield harness


def test_the_line_moves_up_when_the_only_slot_ends_and_nothing_else_arrives(one_slot: EngineHarness) -> None:
    requests = [one_slot.start(prompt=f"Number {i}:", n_predict=3) for i in range(4)]
    one_slot.wait(*requests)
    assert all(request.result()["stop"] is True for request in requests)
