"""`scripts/upstream-suite`: llama-server's own tests against both servers, three lists, and the debt."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.program import our_program, stock_program
from tests.upstream.run import RESULTS, Outcome, Outcomes, read_report, run
from tests.upstream.verdict import DEBT_FILE, Verdict, judge, read_debt


def main() -> int:
    """Returns 0 when the debt is the one that is written down, else 1."""
    options, arguments = _parser().parse_known_args()
    arguments = [argument for argument in arguments if argument != "--"]
    stock = _outcomes("stock", stock_program(), arguments, is_run=options.which != "ours")
    ours = _outcomes("ours", our_program(), arguments, is_run=options.which != "stock")
    if stock is None or ours is None:
        print("one server was never run here: no comparison")
        return 0
    debt = read_debt(DEBT_FILE.read_text(encoding="utf-8"))
    verdict = judge(stock, ours, debt)
    if verdict.grown and options.which != "stock":
        ours |= _second_try(verdict.grown)
        verdict = judge(stock, ours, debt)
    _print(verdict, ours)
    return 0 if verdict.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/upstream-suite",
        description="Runs llama-server's own tests against the llama-server of the tree and against pyggml-server. "
        "What is not an option of this script goes to pytest, for example unit/test_lora.py or -k stream.",
    )
    which = parser.add_mutually_exclusive_group()
    for name, text in (
        ("both", "run both servers (the default)"),
        ("stock", "run llama-server; compare with the last run of ours"),
        ("ours", "run pyggml-server; compare with the last run of llama-server"),
    ):
        which.add_argument(f"--{name}", dest="which", action="store_const", const=name, help=text)
    parser.set_defaults(which="both")
    return parser


def _outcomes(name: str, program: Path, arguments: Sequence[str], is_run: bool) -> Outcomes | None:
    report = RESULTS / f"{name}.jsonl"
    if is_run:
        print(f"{name}: running {program}, log in {RESULTS / name}.log", flush=True)
        return run(name, program, arguments)
    return read_report(report) if report.is_file() else None


def _second_try(tests: Sequence[str]) -> Outcomes:
    """A test that a busy machine made fail passes now; one that fails again is debt."""
    print(f"ours: {len(tests)} tests again that are not on the list", flush=True)
    again = run("ours-again", our_program(), tests)
    for test, outcome in again.items():
        if outcome.outcome == "passed":
            print(f"  passed on the second try: {test}")
    return again


def _print(verdict: Verdict, ours: Outcomes) -> None:
    for title, tests in (
        ("passed by both", verdict.both),
        ("passed by llama-server only: our debt", verdict.stock_only),
        ("passed by pyggml-server only", verdict.ours_only),
    ):
        print(f"\n{title}: {len(tests)}")
        for test in tests:
            why = ours.get(test, Outcome("")).why.split("\n")[0]
            print(f"  {test}" + (f"  ({why[:120]})" if tests is verdict.stock_only and why else ""))
    for test in verdict.grown:
        print(f"\nthe debt has grown by {test}: make it pass, or give it a line with a reason in {DEBT_FILE.name}")
    for line in verdict.paid:
        print(f"\n{line.test} is paid: take its line out of {DEBT_FILE.name}")


if __name__ == "__main__":
    raise SystemExit(main())
