"""scripts/patches check: it tries the series beside the tree and leaves the tree as it was."""

from __future__ import annotations

import pytest

from build_support import check
from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.series import read_series
from build_support.tree import BASE, apply_beside
from tests.build.conftest import Clone


def test_check_applies_the_series_on_the_base_and_gives_the_tree(patched: Clone) -> None:
    head = git_output(patched.layout.tree, "rev-parse", "HEAD")
    assert check.check_applies(patched.layout, patched.lines.append) == head
    assert git_output(patched.layout.tree, "worktree", "list").count("\n") == 0


def test_check_refuses_a_patch_file_that_export_would_write_differently(patched: Clone) -> None:
    (name,) = read_series(patched.layout.patches)
    path = patched.layout.patches / name
    path.write_text(path.read_text() + "-- \n2.0\n")
    patched.ensure()
    with pytest.raises(BuildError, match=rf"patches/{name} is not what export writes"):
        check.check_applies(patched.layout, patched.lines.append)


def test_check_reports_every_lint_problem_at_once(patched: Clone) -> None:
    patched.set_series("gone.patch")
    with pytest.raises(BuildError, match=r"gone\.patch, which is not there(.|\n)*return-two\.patch is not in series"):
        check.check_lint(patched.layout)


def test_applying_nothing_beside_the_tree_gives_its_base(patched: Clone) -> None:
    base = git_output(patched.layout.tree, "rev-parse", BASE)
    assert apply_beside(patched.layout, [], patched.lines.append) == base
