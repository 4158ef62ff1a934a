"""scripts/patches check: it tries the series in a second work tree and leaves the tree as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from build_support import check
from build_support.build_error import BuildError
from build_support.churn import Churn, churn, refuse_churn, table
from build_support.git import git_output
from build_support.series import read_series
from build_support.tree import BASE, apply_in_second_tree
from tests.build.conftest import Clone

Commit = Callable[..., str]


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


def test_applying_nothing_in_a_second_tree_gives_its_base(patched: Clone) -> None:
    base = git_output(patched.layout.tree, "rev-parse", BASE)
    assert apply_in_second_tree(patched.layout, [], patched.lines.append) == base


def test_each_group_is_applied_on_what_it_needs_and_nothing_else(clone: Clone, commit: Commit) -> None:
    clone.ensure()
    commit("llama : count", "src/count.cpp", "int a;\n", group="A")
    commit("llama : merge", "src/merge.cpp", "int b;\n", group="B")
    commit("llama : cells", "src/merge.cpp", "int b, c;\n", group="C")
    commit("llama : copies", "src/count.cpp", "int a, d;\n", group="D")
    commit("llama : pin", "src/pin.cpp", "int e;\n", group="apart")
    commit("llama : arenas", "src/arenas.cpp", "int f;\n", group="apart")
    clone.export()
    clone.lines.clear()
    check.check_groups(clone.layout, clone.lines.append)
    assert clone.lines == [
        "group A: llama-count.patch on the pinned source: ok",
        "group B: llama-merge.patch on the pinned source: ok",
        "group C: llama-cells.patch on B: ok",
        "group D: llama-copies.patch on A and B and C: ok",
        "group apart: llama-pin.patch on the pinned source: ok",
        "group apart: llama-arenas.patch on the pinned source: ok",
    ]


@pytest.mark.parametrize("group", ["B", "C", "apart"])
def test_a_group_that_needs_another_one_unsaid_is_refused(clone: Clone, commit: Commit, group: str) -> None:
    clone.ensure()
    commit("llama : return two", group="A")
    commit("llama : return three", text="int one(void) { return 3; }\n", group=group)
    clone.export()
    with pytest.raises(BuildError, match=r"patches/llama-return-three\.patch does not apply"):
        check.check_groups(clone.layout, clone.lines.append)


def test_a_line_that_a_later_patch_rewrites_is_charged_to_the_one_that_added_it(clone: Clone, commit: Commit) -> None:
    clone.ensure()
    commit("llama : add four lines", "src/more.cpp", "int a;\nint b;\nint c;\nint d;\n")
    commit("llama : change the base", text="int one(void) { return 2; }\n")
    head = commit("llama : rewrite one and remove one", "src/more.cpp", "int a;\nint bb;\nint d;\n")
    found = churn(clone.layout.tree, head)
    assert [(patch.n_added, patch.n_taken_back) for patch in found] == [(4, 2), (1, 0), (1, 0)]
    assert table(found)[0] == "churn:    2 of     4  llama : add four lines"
    assert table(found)[-1] == "churn:    2 of     6  in total, 33.33%"
    with pytest.raises(BuildError, match=r"33\.33% of the lines that the series adds do not stay, more than 1%"):
        refuse_churn(found)


def test_one_line_in_a_hundred_may_go_again() -> None:
    refuse_churn([Churn("llama : add", 100, 1)])
    refuse_churn([])
    with pytest.raises(BuildError):
        refuse_churn([Churn("llama : add", 100, 1), Churn("llama : add more", 99, 1)])
