"""What the comparison of policies shows on the fixed traces, and that the committed numbers are those of this code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.policy.__main__ import plot, table
from tests.bench.policy.comparison import ROTATIONS_PASSES, compare, longest_bounded_wait_passes
from tests.bench.policy.traces import traces

RESULTS = Path(__file__).parent / "results"
NEVER, TURNS = ROTATIONS_PASSES
TRACES = {trace.name: trace for trace in traces()}
VICTIMS = ("smallest", "youngest", "oldest")


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, int], dict[str, Any]]:
    """All rows by (trace, victim, passes until a turn)."""
    return {(row["trace"], row["victim"], row["rotate_passes"]): row for row in compare(traces())}


def test_the_committed_numbers_and_their_plot_are_what_this_planner_does(
    rows: dict[tuple[str, str, int], dict[str, Any]],
) -> None:
    assert json.loads((RESULTS / "policy.json").read_text())["rows"] == list(rows.values())
    assert (RESULTS / "policy.svg").read_text() == plot(list(rows.values()))


def test_every_policy_is_on_every_trace_and_nobody_starves(rows: dict[tuple[str, str, int], dict[str, Any]]) -> None:
    assert set(rows) == {(trace, victim, turns) for trace in TRACES for victim in VICTIMS for turns in ROTATIONS_PASSES}
    assert all(row["n_finished"] == row["n_requests"] == len(TRACES[row["trace"]].arrivals) for row in rows.values())


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("name", TRACES)
def test_with_turns_no_parked_chat_waits_beyond_the_bound(
    name: str, victim: str, rows: dict[tuple[str, str, int], dict[str, Any]]
) -> None:
    bound = longest_bounded_wait_passes(TRACES[name], TURNS)
    assert rows[name, victim, TURNS]["longest_wait_passes"] <= bound


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("name", [name for name in TRACES if name not in ("endless chat", "mixed")])
def test_the_longest_wait_is_shorter_with_turns_than_without(
    name: str, victim: str, rows: dict[tuple[str, str, int], dict[str, Any]]
) -> None:
    assert rows[name, victim, TURNS]["longest_wait_passes"] < rows[name, victim, NEVER]["longest_wait_passes"]


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("name", ["endless chat", "mixed"])
def test_prompts_that_wait_begin_sooner_with_turns_than_without(
    name: str, victim: str, rows: dict[tuple[str, str, int], dict[str, Any]]
) -> None:
    """Here it is prompts that wait longest, or as long as the parked."""
    key = "longest_first_token_passes"
    assert rows[name, victim, TURNS][key] < 0.8 * rows[name, victim, NEVER][key]


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_stream_of_short_requests_does_not_delay_a_parked_long_chat_beyond_one_turn(
    victim: str, rows: dict[tuple[str, str, int], dict[str, Any]]
) -> None:
    name = "long chat, short stream"
    assert rows[name, victim, TURNS]["longest_wait_passes"] <= TURNS + 1
    assert rows[name, victim, NEVER]["longest_wait_passes"] > 2 * TURNS


def test_the_table_has_a_line_for_every_row_and_says_what_turns_are(
    rows: dict[tuple[str, str, int], dict[str, Any]],
) -> None:
    lines = table(list(rows.values())).splitlines()
    assert len(lines) == 2 + len(rows)
    assert "| four chats | smallest | never | 4 |" in lines[2]
