"""`scripts/bench token_cost`: a small run from end to end, and what is read from callgrind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.bench.token_cost import __main__ as token_cost

ROOT = Path(__file__).parents[2]


def test_a_run_measures_each_number_of_chats(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--chats", "1,2", "--steps", "5", "--counted-steps", "0", "--json", str(out)]
    said = subprocess.run(["scripts/bench", "token_cost", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    told = json.loads(out.read_text())
    assert [(row["chats"], row["instructions_per_token"]) for row in told["rows"]] == [(1, None), (2, None)]
    assert all(row["cpu_us_per_token"] > 0 for row in told["rows"])
    assert told["command"].startswith("scripts/bench token_cost --chats 1,2")
    assert len(said.stdout.splitlines()) == 3


def test_instructions_are_read_from_what_callgrind_says() -> None:
    assert token_cost.collected("==5== Events    : Ir\n==5== Collected : 1234567\n==5==\n") == 1234567
    with pytest.raises(ValueError, match="counted nothing: no valgrind"):
        token_cost.collected("no valgrind")


def test_instructions_are_shown_where_they_were_counted() -> None:
    rows = [{"chats": 4, "cpu_us_per_token": 10.5, "instructions_per_token": n} for n in (1234567, None)]
    assert token_cost.table(rows).splitlines()[1:] == [
        "    4              10.5               1,234,567",
        "    4              10.5                       -",
    ]
