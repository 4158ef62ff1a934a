"""A source package brings the patched tree along: the same files as the clone's, built without anything fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.layout import Layout
from build_support.packed_tree import STAMP, archive_file, is_packed, pack_tree
from build_support.pin import Pin
from build_support.tree import ensure_tree
from tests.build.conftest import FILES, Clone

LEFT_OUT = "models/small.gguf"


def never_fetch(_pin: Pin, _folder: Path) -> Path:
    raise AssertionError("a source package fetches nothing")


@pytest.fixture
def package(patched: Clone, tmp_path: Path) -> Layout:
    """A folder as an unpacked source package is: no tree, but its archive."""
    layout = Layout(tmp_path / "package")
    layout.vendor.mkdir(parents=True)
    pack_tree(patched.layout).replace(archive_file(layout))
    return layout


def test_a_package_has_the_patched_files_of_the_clone_and_needs_no_network(patched: Clone, package: Layout) -> None:
    lines: list[str] = []
    tree = ensure_tree(package, lines.append, never_fetch)
    for name in set(FILES) - {LEFT_OUT}:
        assert (tree / name).read_bytes() == (patched.layout.tree / name).read_bytes(), name
    assert "return 2" in (tree / "src/llama.cpp").read_text()
    assert not (tree / LEFT_OUT).exists()
    assert lines == ["source: llama.cpp.tar.xz, which came with this package"]


def test_what_is_not_committed_in_the_tree_is_not_packed(patched: Clone, package: Layout) -> None:
    (patched.layout.tree / "src/llama.cpp").write_text("broken")
    pack_tree(patched.layout).replace(archive_file(package))
    assert "return 2" in (ensure_tree(package, print, never_fetch) / "src/llama.cpp").read_text()
    assert git_output(patched.layout.tree, "status", "--porcelain") != ""


def test_a_tree_that_is_there_is_not_unpacked_again(package: Layout) -> None:
    tree = ensure_tree(package, print, never_fetch)
    before = (tree / "src/llama.cpp").stat().st_mtime_ns
    lines: list[str] = []
    ensure_tree(package, lines.append, never_fetch)
    assert (tree / "src/llama.cpp").stat().st_mtime_ns == before
    assert lines == []


def test_another_archive_takes_the_place_of_the_tree(
    patched: Clone, package: Layout, commit: Callable[..., str]
) -> None:
    ensure_tree(package, print, never_fetch)
    commit("llama : return three", text="int one(void) { return 3; }\n")
    pack_tree(patched.layout).replace(archive_file(package))
    assert "return 3" in (ensure_tree(package, print, never_fetch) / "src/llama.cpp").read_text()


def test_a_damaged_archive_is_an_error_that_says_what_to_do_and_leaves_no_tree(package: Layout) -> None:
    archive_file(package).write_bytes(archive_file(package).read_bytes()[:100])
    with pytest.raises(BuildError, match="cannot be unpacked"):
        ensure_tree(package, print, never_fetch)
    assert not package.tree.exists()
    assert [path.name for path in package.vendor.iterdir()] == [archive_file(package).name]


def test_a_clone_with_a_left_over_archive_uses_its_own_tree(patched: Clone) -> None:
    pack_tree(patched.layout)
    assert not is_packed(patched.layout)
    assert not (patched.ensure() / STAMP).exists()
