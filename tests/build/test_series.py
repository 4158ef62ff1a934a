"""The series in this repository is in order, and every rule that says so rejects what breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from build_support.build_error import BuildError
from build_support.export import export, patch_name
from build_support.layout import of_this_clone
from build_support.lint import problems
from build_support.series import parse_patch, read_patches, read_series, series_hash
from build_support.tree import move_tree
from tests.build.conftest import Clone

Commit = Callable[..., str]


@pytest.fixture
def series(clone: Clone, commit: Commit) -> Clone:
    """A clone with two good patches."""
    clone.ensure()
    commit("llama : return two")
    commit("llama : declare two", "include/llama.h", "int one(void);\nint two(void);\n")
    export(clone.layout)
    move_tree(clone.layout, clone.pin, clone.lines.append)
    return clone


def broken(clone: Clone, old: str, new: str) -> list[str]:
    """The problems after a change of the first patch."""
    path = clone.layout.patches / read_series(clone.layout.patches)[0]
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return problems(clone.layout.patches)


def test_the_series_of_this_repository_has_no_problems() -> None:
    assert problems(of_this_clone().patches) == []
    assert read_series(of_this_clone().patches) != []


def test_export_writes_good_patches_in_order(series: Clone) -> None:
    assert read_series(series.layout.patches) == ["llama-return-two.patch", "llama-declare-two.patch"]
    assert problems(series.layout.patches) == []
    assert "| A | `llama-return-two.patch` | 1 | Pending [never sent] |" in (
        series.layout.patches / "README.md"
    ).read_text(encoding="utf-8")


def test_exporting_twice_changes_no_byte(series: Clone) -> None:
    before = {path.name: path.read_bytes() for path in series.layout.patches.iterdir()}
    export(series.layout)
    assert {path.name: path.read_bytes() for path in series.layout.patches.iterdir()} == before


def test_export_removes_the_file_of_a_patch_that_is_gone(series: Clone) -> None:
    series.set_series("llama-return-two.patch")
    series.ensure()
    series.set_series("llama-return-two.patch", "llama-declare-two.patch")
    export(series.layout)
    assert not (series.layout.patches / "llama-declare-two.patch").exists()
    assert problems(series.layout.patches) == []


def test_export_refuses_uncommitted_edits(series: Clone) -> None:
    (series.layout.tree / "src/llama.cpp").write_text("an edit\n")
    with pytest.raises(BuildError, match=r"has uncommitted edits: M src/llama\.cpp"):
        export(series.layout)


@pytest.mark.parametrize("section", ["Why", "What", "Limits", "Numbers", "Tests"])
def test_a_header_without_one_of_its_sections_is_a_problem(series: Clone, section: str) -> None:
    assert f"llama-return-two.patch: the header has no {section}: section" in broken(series, f"{section}:", "Also:")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Why: a test", "Why: a tést", r"is not ASCII"),
        ("llama : return two", "return two", r"is not `<module> : <title>`"),
        ("llama : return two", "llama : return " + "x" * 80, r"at most 72 fit"),
        ("Why: a test", "Why: TODO", r"Why: says 'TODO'"),
        ("Why: a test", "Why: a test. The rest is to\nbe filled in.", r"Why: says 'to be filled'"),
        ("Pending [never sent]", "Pending", r"is not `Pending \[reason\]`"),
        ("What: it", "What: it\n\nWhat: and it", r"has 2 What: sections: a patch is one idea, split it"),
        ("Group: A", "Group: E", r"the group 'E' is none of A, B, C, D, apart"),
        ("Group: A\n", "", r"the group '' is none of"),
        ("Group: A", "Group: D", r"group A stands behind group D"),
    ],
)
def test_a_patch_that_breaks_a_rule_is_named_with_the_rule(series: Clone, old: str, new: str, problem: str) -> None:
    found = broken(series, old, new)
    assert any(re.match(r"llama-(return|declare)-two\.patch: ", line) and re.search(problem, line) for line in found)


def test_series_and_files_must_agree(series: Clone) -> None:
    series.set_series("llama-return-two.patch", "llama-return-two.patch", "gone.patch")
    assert problems(series.layout.patches) == [
        "series names llama-return-two.patch twice",
        "series names gone.patch, which is not there",
        "llama-declare-two.patch is not in series",
    ]


def test_a_table_that_the_headers_do_not_give_is_a_problem(series: Clone) -> None:
    readme = series.layout.patches / "README.md"
    readme.write_text(readme.read_text().replace("| 1 |", "| 2 |"))
    assert problems(series.layout.patches)[-1].startswith("README.md: the table is not what the headers give")
    readme.write_text("no table")
    assert "lost the markers" in problems(series.layout.patches)[-1]


def test_the_hash_of_the_series_changes_with_order_and_content(series: Clone) -> None:
    folder = series.layout.patches
    hashes = {series_hash(folder)}
    series.set_series(*reversed(read_series(folder)))
    hashes.add(series_hash(folder))
    (folder / "llama-return-two.patch").write_bytes(b"other")
    hashes.add(series_hash(folder))
    assert len(hashes) == 3


def test_a_folded_subject_is_read_as_one_line() -> None:
    text = b"From: a\nSubject: [PATCH] llama : one\n two\n\nWhy: a\n b\n\nTests: c\n\nGroup: B\n---\n x | 1 +\n"
    patch = parse_patch("x", text)
    assert patch.subject == "llama : one two"
    assert patch.sections == {"Why": ["a b"], "Tests": ["c"]}
    assert patch.group == "B"


def test_a_file_is_named_after_its_title() -> None:
    assert patch_name("ggml-cuda : page-lock (in pieces)") == "ggml-cuda-page-lock-in-pieces.patch"


def test_every_patch_of_this_repository_is_named_after_its_title() -> None:
    for patch in read_patches(of_this_clone().patches):
        assert patch.name == patch_name(patch.subject)
