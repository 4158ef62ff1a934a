"""Judges the series and applies it on the pinned base, whole and group by group. The tree itself stays as it is."""

from __future__ import annotations

from build_support.build_error import BuildError
from build_support.churn import churn, refuse_churn, table
from build_support.export import format_commits
from build_support.git import git_output
from build_support.groups import groups_of
from build_support.layout import Layout
from build_support.lint import problems
from build_support.progress import Say
from build_support.series import read_patches, series_files
from build_support.tree import apply_in_second_tree, ensure_tree


def check_lint(layout: Layout) -> None:
    found = problems(layout.patches)
    if found:
        raise BuildError("the patch series has problems:\n    " + "\n    ".join(found), "see patches/README.md")


def check_applies(layout: Layout, say: Say) -> str:
    """Applies all patches in order, in a second work tree; also refuses a tree that export would write differently."""
    tree = ensure_tree(layout, say)
    head = apply_in_second_tree(layout, series_files(layout.patches), say)
    if git_output(tree, "rev-parse", "HEAD") == head:
        for name, text in format_commits(tree):
            if (layout.patches / name).read_bytes() != text:
                raise BuildError(f"patches/{name} is not what export writes", "run scripts/patches export")
    return head


def check_churn(layout: Layout, head: str, say: Say) -> None:
    """Of the series applied at `head`: prints what does not stay, and refuses too much of it."""
    found = churn(layout.tree, head)
    for line in table(found):
        say(line)
    refuse_churn(found)


def check_groups(layout: Layout, say: Say) -> None:
    """Applies each group on what it needs and nothing else. Raises BuildError at the first patch that needs more."""
    for group in groups_of(read_patches(layout.patches)):
        files = [layout.patches / patch.name for patch in (*group.below, *group.patches)]
        apply_in_second_tree(layout, files, lambda _line: None)
        below = " and ".join(dict.fromkeys(patch.group for patch in group.below)) or "the pinned source"
        what = group.patches[0].name if len(group.patches) == 1 else f"{len(group.patches)} patches"
        say(f"group {group.name}: {what} on {below}: ok")
