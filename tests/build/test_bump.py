"""scripts/patches bump and variants: the series on other versions of the package; tree and pin stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.bump import bump
from build_support.git import git, git_output
from build_support.lint import problems
from build_support.series import read_series
from build_support.tree import apply_series
from build_support.variants import files_for, variant_folder, write_variants
from tests.build.conftest import FILES, Clone, write_archive

Commit = Callable[..., str]

# A version that changed other lines, and one that rewrote the patched one.
GGML = "set(GGML_VERSION_MAJOR 0)\nset(GGML_VERSION_MINOR 9)\nset(GGML_VERSION_PATCH 4)\n"
MOVED = {**FILES, "include/llama.h": "int one(void);\nint nine(void);\n", "ggml/CMakeLists.txt": GGML}
REWRITTEN = {**MOVED, "src/llama.cpp": "int one(void) { return 1 + 0; }\n"}


def test_a_bump_shows_what_moved_and_gives_the_new_pin(patched: Clone, tmp_path: Path) -> None:
    old_pin = patched.pin
    patched.served = write_archive(tmp_path / "next.tar.gz", MOVED)
    pin, difference = bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert (pin.version, pin.upstream_commit, pin.ggml_version) == ("1.2.4", "def", "0.9.4")
    assert pin.sha256 != old_pin.sha256
    assert "llama : return two" in difference
    assert patched.pin == old_pin
    assert not (patched.layout.vendor / "bumping").exists()


def test_a_bump_names_the_patch_that_no_longer_applies(patched: Clone, tmp_path: Path) -> None:
    head = git_output(patched.layout.tree, "rev-parse", "HEAD")
    patched.served = write_archive(tmp_path / "next.tar.gz", REWRITTEN)
    with pytest.raises(BuildError, match=r"return-two\.patch does not apply there:\n    conflict in src/llama\.cpp"):
        bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert git_output(patched.layout.tree, "rev-parse", "HEAD") == head


def rebased(clone: Clone, folder: Path) -> Path:
    """A tree of the rewritten version in which the one patch was rebased by hand."""
    clone.served = write_archive(folder / "next.tar.gz", REWRITTEN)
    tree = folder / "tree"
    with pytest.raises(BuildError, match=r"does not apply there"):
        bump(clone.layout, "1.2.4", "def", clone.lines.append, clone.fetch, keep=tree)
    (tree / "src/llama.cpp").write_text("int one(void) { return 2 + 0; }\n", encoding="ascii")
    git_output(tree, "add", "src/llama.cpp")
    git_output(tree, "am", "--continue")
    return tree


def test_a_patch_rebased_in_the_kept_tree_becomes_a_variant_and_the_bump_takes_it(
    patched: Clone, tmp_path: Path
) -> None:
    (name,) = read_series(patched.layout.patches)
    assert write_variants(rebased(patched, tmp_path), patched.layout.patches, "1.2.4") == [name]
    pin, difference = bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert pin.version == "1.2.4"
    assert "return 2 + 0" in difference
    assert problems(patched.layout.patches) == []
    assert files_for(patched.layout.patches, "1.2.3") == [patched.layout.patches / name]


def test_variants_apply_in_order_with_git_am_alone(patched: Clone, tmp_path: Path) -> None:
    tree = rebased(patched, tmp_path)
    write_variants(tree, patched.layout.patches, "1.2.4")
    wanted = git_output(tree, "rev-parse", "HEAD^{tree}")
    git_output(tree, "checkout", "--quiet", "base")
    apply_series(tree, files_for(patched.layout.patches, "1.2.4"), patched.lines.append)
    assert git_output(tree, "rev-parse", "HEAD^{tree}") == wanted


def test_a_patch_that_applies_as_it_is_gets_no_variant(patched: Clone, tmp_path: Path) -> None:
    patched.served = write_archive(tmp_path / "next.tar.gz", MOVED)
    tree = tmp_path / "tree"
    bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch, keep=tree)
    assert write_variants(tree, patched.layout.patches, "1.2.4") == []
    assert git(tree, "status", "--porcelain").stdout == ""
    assert files_for(patched.layout.patches, "1.2.4") == files_for(patched.layout.patches, "1.2.3")


def test_a_bump_tries_no_more_patches_than_the_version_takes(patched: Clone, commit: Commit, tmp_path: Path) -> None:
    tree = rebased(patched, tmp_path)
    write_variants(tree, patched.layout.patches, "1.2.4")
    commit("llama : return three", text="int one(void) { return 3; }\n")
    patched.export()
    _, difference = bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch)
    assert difference.count("llama : return") == 1
    assert "return three" not in difference


def test_what_does_not_fit_between_a_variant_and_the_series_is_found(patched: Clone, tmp_path: Path) -> None:
    write_variants(rebased(patched, tmp_path), patched.layout.patches, "1.2.4")
    folder = variant_folder(patched.layout.patches, "1.2.4")
    (name,) = read_series(patched.layout.patches)
    text = (folder / name).read_text(encoding="ascii")
    (folder / name).write_text(text.replace("it changes a line", "it changes a \N{EM DASH}"), encoding="utf-8")
    assert any("is not ASCII" in problem for problem in problems(patched.layout.patches))
    assert f"variants/1.2.4/{name}: its message is not that of the patch that it replaces" in problems(
        patched.layout.patches
    )
    (folder / "series").write_text("another.patch\n", encoding="ascii")
    found = problems(patched.layout.patches)
    assert "variants/1.2.4/series is not the beginning of the series" in found
    assert f"variants/1.2.4/{name} is not in variants/1.2.4/series" in found


def test_a_tree_is_kept_only_in_a_new_folder(patched: Clone, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"is there already"):
        bump(patched.layout, "1.2.4", "def", patched.lines.append, patched.fetch, keep=tmp_path)
