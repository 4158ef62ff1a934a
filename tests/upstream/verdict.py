"""What two runs of the suite say together: who passes what, and whether our debt is the one that is written down."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tests.upstream.run import Outcomes

DEBT_FILE = Path(__file__).with_name("debt.txt")
SEPARATOR = " -- "


class DebtFormatError(ValueError):
    """A line of the debt list that says no test or no reason; the message names it."""


@dataclass(frozen=True)
class DebtLine:
    """A test that stock passes and ours does not yet, and why. A trailing `*` stands for every test that begins so."""

    test: str
    reason: str

    def covers(self, test: str) -> bool:
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test


@dataclass(frozen=True)
class Verdict:
    """Tests by who passes them, among those that both ran; and how that compares with the debt list.

    grown  stock passes them, ours does not, and no line says so.
    paid   lines whose tests were run and all pass now: they must go.
    """

    both: list[str]
    stock_only: list[str]
    ours_only: list[str]
    grown: list[str]
    paid: list[DebtLine]

    @property
    def is_good(self) -> bool:
        return not self.grown and not self.paid


def read_debt(text: str) -> list[DebtLine]:
    """The lines of the list. Empty ones and comments (`#`) count for nothing. Raises DebtFormatError."""
    lines = [line.strip() for line in text.splitlines()]
    return [_debt_line(line) for line in lines if line and not line.startswith("#")]


def judge(stock: Outcomes, ours: Outcomes, debt: Sequence[DebtLine]) -> Verdict:
    """Compare two runs. A test that stock skips or fails is nobody's debt."""
    tests = sorted(stock.keys() & ours.keys())
    stock_passes = {test for test in tests if stock[test].outcome == "passed"}
    ours_passes = {test for test in tests if ours[test].outcome == "passed"}
    stock_only = [test for test in tests if test in stock_passes - ours_passes]
    return Verdict(
        both=[test for test in tests if test in stock_passes & ours_passes],
        stock_only=stock_only,
        ours_only=[test for test in tests if test in ours_passes - stock_passes],
        grown=[test for test in stock_only if not any(line.covers(test) for line in debt)],
        paid=[line for line in debt if _is_paid(line, tests, ours_passes)],
    )


def _debt_line(line: str) -> DebtLine:
    test, separator, reason = line.partition(SEPARATOR)
    if not separator or not test.strip() or not reason.strip():
        raise DebtFormatError(f"{line!r} is no line of the debt list: write TEST{SEPARATOR}REASON")
    return DebtLine(test.strip(), reason.strip())


def _is_paid(line: DebtLine, tests: Sequence[str], ours_passes: Set[str]) -> bool:
    covered = {test for test in tests if line.covers(test)}
    return bool(covered) and covered <= ours_passes
