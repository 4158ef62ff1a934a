"""What the comparison of policies shows on the fixed traces, and that the committed numbers are those of this code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench.policy.__main__ import plot, table
from tests.bench.policy.classes import classes_table, compare_classes
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


@pytest.fixture(scope="module")
def mixed() -> list[dict[str, Any]]:
    return compare_classes()


def test_interactive_requests_gain_much_from_a_class_of_their_own_and_batch_requests_lose_little(
    mixed: list[dict[str, Any]],
) -> None:
    told = {(row["variant"], row["kind"]): row for row in mixed}
    assert all(row["n_finished"] == {"interactive": 60, "batch": 8}[row["kind"]] for row in mixed)
    for variant in ("two classes", "two classes, ageing"):
        gained = told[variant, "interactive"], told["one class", "interactive"]
        lost = told[variant, "batch"], told["one class", "batch"]
        assert gained[0]["mean_first_token_passes"] < 0.05 * gained[1]["mean_first_token_passes"]
        assert lost[0]["mean_end_passes"] < 1.25 * lost[1]["mean_end_passes"]
    assert "| two classes | batch | 8 |" in classes_table(mixed)


def test_the_committed_numbers_and_their_plot_are_what_this_planner_does(
    rows: dict[tuple[str, str, int], dict[str, Any]], mixed: list[dict[str, Any]]
) -> None:
    committed = json.loads((RESULTS / "policy.json").read_text())
    assert committed["rows"] == list(rows.values())
    assert committed["classes"] == mixed
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
