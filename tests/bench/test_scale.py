"""The simulation of users: that its committed numbers are those of this planner, and what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.scale.__main__ import CASES, plot, table
from tests.bench.scale.users import Replica, simulate_users

RESULTS = Path(__file__).parent / "results"


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / "scale.json").read_text())
    return result


def test_the_committed_numbers_of_ten_users_are_what_this_planner_does(committed: dict[str, Any]) -> None:
    first = committed["sizes"][0]
    assert first == {"users_of_all": 10, "replicas": 1, **simulate_users(10, Replica())}


def test_the_picture_and_the_table_are_of_the_committed_numbers(committed: dict[str, Any]) -> None:
    rows = committed["sizes"]
    assert (RESULTS / "scale.svg").read_text() == plot(rows)
    assert len(rows) == sum(len(numbers) for _, numbers in CASES)
    assert len(table(rows).splitlines()) == 2 + len(rows)


def test_no_request_of_the_simulation_failed(committed: dict[str, Any]) -> None:
    assert all(row["failed"] == 0 for row in committed["sizes"] + committed["variants"])


def test_more_replicas_never_make_users_wait_longer(committed: dict[str, Any]) -> None:
    for n_users, _ in CASES:
        waits = [row["first_token_p95_s"] for row in committed["sizes"] if row["users_of_all"] == n_users]
        assert waits == sorted(waits, reverse=True)
