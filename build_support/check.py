"""Judges the series and applies it on the pinned base. The tree itself stays as it is."""

from __future__ import annotations

from build_support.build_error import BuildError
from build_support.export import format_commits
from build_support.git import git_output
from build_support.layout import Layout
from build_support.lint import problems
from build_support.series import series_files
from build_support.tree import Say, apply_beside, ensure_tree


def check_lint(layout: Layout) -> None:
    found = problems(layout.patches)
    if found:
        raise BuildError("the patch series has problems:\n    " + "\n    ".join(found), "see patches/README.md")


def check_applies(layout: Layout, say: Say) -> str:
    """Applies all patches in order beside the tree; also refuses a tree that export would write differently."""
    tree = ensure_tree(layout, say)
    head = apply_beside(layout, series_files(layout.patches), say)
    if git_output(tree, "rev-parse", "HEAD") == head:
        for name, text in format_commits(tree):
            if (layout.patches / name).read_bytes() != text:
                raise BuildError(f"patches/{name} is not what export writes", "run scripts/patches export")
    return head
