"""Churn: lines that a patch of the series adds and a later one removes or rewrites. Final forms have none.

Counted in the commits that `git am` makes of the series, with git's own diff and blame. Must not touch the tree.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.tree import BASE

MAX_SHARE = 0.01
DIFF = ("diff", "--no-renames", "--unified=0", "--diff-algorithm=myers")
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ")


@dataclass(frozen=True)
class Churn:
    """Of one patch: the lines that it adds, and those of them that later patches take back."""

    subject: str
    n_added: int
    n_taken_back: int


def churn(tree: Path, head: str) -> list[Churn]:
    """One entry per commit from the base to `head`, in order. Blocks for some seconds."""
    commits = git_output(tree, "rev-list", "--reverse", f"{BASE}..{head}").split()
    taken_back: Counter[str] = Counter()
    for commit in commits:
        taken_back.update(_authors_of_removed(tree, commit))
    return [
        Churn(git_output(tree, "log", "-1", "--format=%s", commit), _n_added(tree, commit), taken_back[commit])
        for commit in commits
    ]


def share(found: list[Churn]) -> float:
    n_added = sum(patch.n_added for patch in found)
    return sum(patch.n_taken_back for patch in found) / n_added if n_added else 0.0


def table(found: list[Churn]) -> list[str]:
    """Lines to print: added lines, those that do not stay, and the patch; the total last."""
    rows = [f"churn: {patch.n_taken_back:4} of {patch.n_added:5}  {patch.subject}" for patch in found]
    n_added, n_taken_back = sum(p.n_added for p in found), sum(p.n_taken_back for p in found)
    return [*rows, f"churn: {n_taken_back:4} of {n_added:5}  in total, {share(found):.2%}"]


def refuse_churn(found: list[Churn]) -> None:
    """Raises BuildError above the limit."""
    if share(found) > MAX_SHARE:
        what = f"{share(found):.2%} of the lines that the series adds do not stay, more than {MAX_SHARE:.0%}"
        raise BuildError(what, "give the patch that adds them the form that the later one gives them")


def _n_added(tree: Path, commit: str) -> int:
    lines = git_output(tree, *DIFF, f"{commit}~", commit).splitlines()
    return sum(1 for line in lines if line.startswith("+") and not line.startswith("+++ "))


def _authors_of_removed(tree: Path, commit: str) -> list[str]:
    """For each line that `commit` removes and the series added: the commit that added it."""
    found = []
    options = ("--no-renames", "--name-only", "--diff-filter=MD")
    for name in git_output(tree, "diff", *options, f"{commit}~", commit).splitlines():
        hunks = (HUNK.match(line) for line in git_output(tree, *DIFF, f"{commit}~", commit, "--", name).splitlines())
        removed = [(int(hunk[1]), int(hunk[2] or 1)) for hunk in hunks if hunk]
        ranges = [f"-L{first},+{n}" for first, n in removed if n]
        if ranges:
            blamed = git_output(tree, "blame", "-s", "-l", *ranges, f"{BASE}..{commit}~", "--", name)
            # a line of the base has its commit cut by one and marked with ^
            found += [line.split()[0] for line in blamed.splitlines() if not line.startswith("^")]
    return found
