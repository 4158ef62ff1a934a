"""The tree is made whole from pin and series, moves with them, loses no work, and never passes for whole too early."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.export import export
from build_support.git import git_output
from build_support.layout import Layout
from build_support.tree import move_tree, read_stamp, stamp_file
from tests.build.conftest import FILES, Clone, write_archive

Commit = Callable[..., str]


def leftovers(layout: Layout) -> list[str]:
    return sorted(path.name for path in layout.vendor.iterdir() if path.is_dir() and path != layout.tree)


def exported(clone: Clone, commit: Commit, title: str = "llama : return two") -> str:
    """Leaves one patch in the series, and the tree on it."""
    clone.ensure()
    commit(title)
    (name,) = export(clone.layout)
    move_tree(clone.layout, clone.pin, clone.lines.append)
    return name


def test_a_new_tree_has_every_file_of_the_archive_in_its_base_commit(clone: Clone) -> None:
    tree = clone.ensure()
    assert git_output(tree, "ls-files").split() == sorted(FILES)
    assert not (tree / ".git").is_file()
    assert leftovers(clone.layout) == []


def test_a_second_call_fetches_and_changes_nothing(clone: Clone) -> None:
    tree = clone.ensure()
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*.cpp")}
    clone.ensure()
    assert clone.n_fetches == 1
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*.cpp")} == before


def test_the_same_input_gives_the_same_commit_in_every_clone(
    clone: Clone, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(clone, commit)
    other = Clone(Layout(tmp_path / "other"), clone.served)
    for folder in (clone.layout.patches, clone.layout.vendor):
        copy = other.layout.root / folder.relative_to(clone.layout.root)
        copy.mkdir(parents=True)
        for path in folder.iterdir():
            if path.is_file():
                (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))
    assert git_output(other.ensure(), "rev-parse", "HEAD") == git_output(clone.layout.tree, "rev-parse", "HEAD")


def test_a_changed_series_rewrites_only_the_files_that_differ(clone: Clone, commit: Commit) -> None:
    exported(clone, commit)
    tree = clone.layout.tree
    for path in (tree / "include/llama.h", tree / "src/llama.cpp"):
        os.utime(path, (1_000, 1_000))
    clone.set_series()
    clone.ensure()
    assert (tree / "src/llama.cpp").read_text() == FILES["src/llama.cpp"]
    assert (tree / "src/llama.cpp").stat().st_mtime > 1_000
    assert (tree / "include/llama.h").stat().st_mtime == 1_000
    assert clone.n_fetches == 1


def test_a_patch_that_does_not_apply_is_named_and_leaves_the_tree_as_it_was(clone: Clone, commit: Commit) -> None:
    name = exported(clone, commit)
    head = git_output(clone.layout.tree, "rev-parse", "HEAD")
    patch = clone.layout.patches / name
    patch.write_text(patch.read_text().replace("-int one(void) { return 1; }", "-int one(void) { return 7; }"))
    for _ in range(2):
        with pytest.raises(BuildError, match=rf"patches/{name} does not apply(.|\n)*remedy: "):
            clone.ensure()
    assert git_output(clone.layout.tree, "rev-parse", "HEAD") == head
    assert leftovers(clone.layout) == []


def test_a_patch_that_does_not_apply_leaves_no_new_tree(clone: Clone) -> None:
    (clone.layout.patches / "bad.patch").write_text("From: nobody\nSubject: no diff\n\nnothing\n")
    clone.set_series("bad.patch")
    with pytest.raises(BuildError, match=r"patches/bad\.patch does not apply"):
        clone.ensure()
    assert not clone.layout.tree.exists()
    assert leftovers(clone.layout) == []


def test_a_tree_without_its_stamp_is_made_again(clone: Clone) -> None:
    tree = clone.ensure()
    stamp_file(tree).unlink()
    (tree / "src/llama.cpp").write_text("half-written")
    clone.ensure()
    assert (tree / "src/llama.cpp").read_text() == FILES["src/llama.cpp"]
    assert read_stamp(tree) is not None


def test_a_new_pin_replaces_the_tree_with_files_that_look_new(clone: Clone, tmp_path: Path) -> None:
    tree = clone.ensure()
    before = (tree / "include/llama.h").stat().st_mtime
    changed = {**FILES, "include/llama.h": "int two(void);\n"}
    clone.set_pin(write_archive(tmp_path / "upstream-1.2.4.tar.gz", changed), version="1.2.4")
    clone.ensure()
    assert (tree / "include/llama.h").read_text() == "int two(void);\n"
    assert (tree / "include/llama.h").stat().st_mtime >= int(before)
    assert leftovers(clone.layout) == []


def test_commits_that_are_not_exported_are_built_and_reported(clone: Clone, commit: Commit) -> None:
    clone.ensure()
    head = commit("llama : return two")
    tree = clone.ensure()
    assert git_output(tree, "rev-parse", "HEAD") == head
    assert "commits that patches/ does not have" in clone.lines[-1]


def test_work_in_the_tree_is_never_thrown_away_unasked(clone: Clone, commit: Commit) -> None:
    name = exported(clone, commit)
    commit("llama : return three", text="int one(void) { return 3; }\n")
    clone.set_series()
    with pytest.raises(BuildError, match=r"is not in patches/(.|\n)*--discard"):
        clone.ensure()
    git_output(clone.layout.tree, "reset", "--hard", "HEAD~1")
    (clone.layout.tree / "src/llama.cpp").write_text("an edit\n")
    with pytest.raises(BuildError, match=r"has edits: M src/llama\.cpp"):
        clone.ensure()
    clone.ensure(discard=True)
    assert (clone.layout.tree / "src/llama.cpp").read_text() == FILES["src/llama.cpp"]
    assert (clone.layout.patches / name).exists()


def test_discard_gives_up_work_also_when_the_series_is_the_same(clone: Clone, commit: Commit) -> None:
    tree = clone.ensure()
    base = git_output(tree, "rev-parse", "HEAD")
    commit("llama : return two")
    clone.ensure(discard=True)
    assert git_output(tree, "rev-parse", "HEAD") == base
