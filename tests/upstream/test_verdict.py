"""What the suite's runner makes of two runs, and of the list of debts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.upstream.run import Outcome, Outcomes, read_report
from tests.upstream.verdict import DEBT_FILE, DebtFormatError, DebtLine, judge, read_debt

ROUTER = DebtLine("unit/test_router.py::*", "several models in one server")


def outcomes(**by_name: str) -> Outcomes:
    return {f"unit/test_{name}.py::test_it": Outcome(outcome) for name, outcome in by_name.items()}


def test_each_test_is_in_the_list_of_those_who_pass_it() -> None:
    stock = outcomes(a="passed", b="passed", c="failed", d="failed", e="skipped", only_stock_ran="passed")
    ours = outcomes(a="passed", b="failed", c="passed", d="failed", e="passed", only_ours_ran="passed")
    verdict = judge(stock, ours, [])
    assert verdict.both == ["unit/test_a.py::test_it"]
    assert verdict.stock_only == ["unit/test_b.py::test_it"]
    assert verdict.ours_only == ["unit/test_c.py::test_it", "unit/test_e.py::test_it"]


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_test_that_only_stock_passes_and_no_line_names_makes_the_debt_grow(outcome: str) -> None:
    verdict = judge(outcomes(a="passed", router="passed"), outcomes(a=outcome, router=outcome), [ROUTER])
    assert verdict.grown == ["unit/test_a.py::test_it"]
    assert not verdict.is_good


def test_a_test_that_stock_fails_too_is_no_debt() -> None:
    assert judge(outcomes(a="failed"), outcomes(a="failed"), []).is_good


def test_a_line_whose_tests_all_pass_must_go() -> None:
    verdict = judge(outcomes(router="passed"), outcomes(router="passed"), [ROUTER])
    assert verdict.paid == [ROUTER]
    assert not verdict.is_good


def test_a_line_whose_tests_were_not_run_stays() -> None:
    assert judge(outcomes(a="passed"), outcomes(a="passed"), [ROUTER]).is_good


def test_a_line_needs_a_test_and_a_reason() -> None:
    assert read_debt("# families\n\nunit/test_router.py::* -- several models in one server\n") == [ROUTER]
    for line in ("unit/test_a.py::test_it", "unit/test_a.py::test_it -- ", " -- why"):
        with pytest.raises(DebtFormatError, match="TEST -- REASON"):
            read_debt(line)


def test_the_list_can_be_read_and_names_no_test_twice() -> None:
    tests = [line.test for line in read_debt(DEBT_FILE.read_text(encoding="utf-8"))]
    assert len(set(tests)) == len(tests)


def test_a_failed_phase_decides_over_one_that_passed(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    phases = [("a", "passed"), ("a", "failed"), ("b", "failed"), ("b", "passed"), ("c", "skipped")]
    lines = [json.dumps({"test": test, "outcome": outcome, "why": ""}) for test, outcome in phases]
    report.write_text("\n".join(lines), encoding="utf-8")
    found = {test: outcome.outcome for test, outcome in read_report(report).items()}
    assert found == {"a": "failed", "b": "failed", "c": "skipped"}
