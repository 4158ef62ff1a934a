"""`scripts/bench busy`: what counts while several generate, and a small run from end to end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.bench.busy import situations
from tests.bench.busy.situations import together
from tests.bench.throughput.load import Stream

ROOT = Path(__file__).parents[2]


def stream(*events_s: float) -> Stream:
    return Stream({}, events_s=list(events_s))


def test_only_what_all_of_them_do_at_once_counts() -> None:
    tokens_per_s, longest_gap_ms = together([stream(0, 9, 10, 11, 12), stream(10, 11, 12, 13, 50)])
    assert tokens_per_s == (3 + 3 - 2) / 2
    assert longest_gap_ms == 1000


def test_one_alone_counts_from_its_first_token_to_its_last() -> None:
    assert together([stream(1, 2, 5)]) == (0.5, 3000)


def test_answers_that_do_not_overlap_are_asked_for_again_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def generate(_servers: object, n_tokens: int) -> list[Stream]:
        asked.append(n_tokens)
        return [stream(0, 1, *range(2, n_tokens)), stream(20, 21, 40)]

    monkeypatch.setattr(situations, "generate", generate)
    assert len(situations.overlapping([], 10)[0].events_s) == 40
    assert asked == [10, 20, 40]


def test_a_small_run_gives_a_row_for_each_situation_and_setting(smollm2_path: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "busy.json"
    words = ["scripts/bench", "busy", "--model", str(smollm2_path), "--stock", "", "--settings", "passive"]
    words += ["--tokens", "8", "--rounds", "1", "--threads", "1", "--json", str(numbers)]
    done = subprocess.run(
        [*words, "--", "-fit", "off", "--no-warmup"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(numbers.read_text())
    assert [(row["situation"], row["setting"]) for row in told["rows"]] == [
        (situation, setting)
        for situation in ("alone", "two servers", "beside a build")
        for setting in ("passive", "one thread")
    ]
    assert all(row["tokens_per_s"] > 0 and row["longest_gap_ms"] > 0 for row in told["rows"])
