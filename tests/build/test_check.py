"""scripts/patches check and bump: they try things beside the tree and leave the tree as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build_support import check
from build_support.build_error import BuildError
from build_support.bump import bump
from build_support.export import export
from build_support.git import git_output
from build_support.series import read_series
from build_support.tree import BASE, apply_beside, move_tree
from tests.build.conftest import FILES, Clone, write_archive

Commit = Callable[..., str]

# A version that changed other lines, and one that rewrote the patched one.
GGML = "set(GGML_VERSION_MAJOR 0)\nset(GGML_VERSION_MINOR 9)\nset(GGML_VERSION_PATCH 4)\n"
MOVED = {**FILES, "include/llama.h": "int one(void);\nint nine(void);\n", "ggml/CMakeLists.txt": GGML}
REWRITTEN = {**MOVED, "src/llama.cpp": "int one(void) { return 1 + 0; }\n"}


@pytest.fixture
def patched(clone: Clone, commit: Commit) -> Clone:
    clone.ensure()
    commit("llama : return two")
    export(clone.layout)
    move_tree(clone.layout, clone.pin, clone.lines.append)
    return clone


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


def test_the_tests_that_a_patch_adds_are_the_ones_that_check_builds(patched: Clone, commit: Commit) -> None:
    (patched.layout.tree / "tests").mkdir()
    commit("llama : test two", "tests/test-two.cpp", "int main() {}\n")
    assert check.new_tests(patched.layout.tree) == ["test-two"]


def test_check_build_builds_after_each_patch_and_leaves_nothing_behind(
    clone: Clone, commit: Commit, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    project = "cmake_minimum_required(VERSION 3.18)\nproject(small CXX)\nadd_library(llama src/llama.cpp)\n"
    clone.set_pin(write_archive(tmp_path / "small.tar.gz", {**FILES, "CMakeLists.txt": project}))
    clone.ensure()
    commit("llama : return two")
    commit("llama : return nothing", text="int one(void) { not C++ }\n")
    export(clone.layout)
    move_tree(clone.layout, clone.pin, clone.lines.append)
    with pytest.raises(BuildError, match=r"build failed"):
        check.check_builds(clone.layout, clone.lines.append)
    assert clone.lines[-2:] == ["patch: llama-return-two.patch", "patch: llama-return-nothing.patch"]
    assert "not C++" in "".join(capfd.readouterr())
    assert not (clone.layout.vendor / "checking").exists()


def test_a_bump_shows_what_moved_and_gives_the_new_pin(patched: Clone, tmp_path: Path) -> None:
    old_pin = patched.pin
    patched.served = write_archive(tmp_path / "next.tar.gz", MOVED)
    pin, difference = bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert (pin.version, pin.upstream_commit, pin.ggml_version) == ("1.2.4", "def", "0.9.4")
    assert pin.sha256 != old_pin.sha256
    assert "llama : return two" in difference
    assert patched.pin == old_pin


def test_a_bump_names_the_patch_that_no_longer_applies(patched: Clone, tmp_path: Path) -> None:
    head = git_output(patched.layout.tree, "rev-parse", "HEAD")
    patched.served = write_archive(tmp_path / "next.tar.gz", REWRITTEN)
    with pytest.raises(BuildError, match=r"return-two\.patch does not apply there:\n    conflict in src/llama\.cpp"):
        bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert git_output(patched.layout.tree, "rev-parse", "HEAD") == head


def test_applying_nothing_beside_the_tree_gives_its_base(patched: Clone) -> None:
    base = git_output(patched.layout.tree, "rev-parse", BASE)
    assert apply_beside(patched.layout, [], patched.lines.append) == base
