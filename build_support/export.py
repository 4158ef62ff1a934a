"""Writes the commits of the tree into patches/: one file per commit, the series, and the table in the README.

The output depends on the commits' content only, so that exporting twice changes nothing. Must not touch the tree.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.layout import Layout
from build_support.series import Patch, parse_patch, read_patches, read_series
from build_support.tree import BASE

TABLE_BEGIN = "<!-- table: made from the headers by scripts/patches export -->"
TABLE_END = "<!-- end of table -->"

FORMAT = ("--zero-commit", "--no-signature", "--no-numbered", "--full-index", "--no-renames", "--diff-algorithm=myers")


def patch_name(subject: str) -> str:
    """`llama : count the cells` -> llama-count-the-cells.patch"""
    return re.sub(r"[^a-z0-9]+", "-", subject.lower()).strip("-")[:60].rstrip("-") + ".patch"


def format_commits(tree: Path) -> list[tuple[str, bytes]]:
    """File name and content for each commit since the base, oldest first."""
    with tempfile.TemporaryDirectory() as temporary:
        git_output(tree, "format-patch", "--quiet", *FORMAT, "--output-directory", temporary, f"{BASE}..HEAD")
        texts = [path.read_bytes() for path in sorted(Path(temporary).iterdir())]
    return [(patch_name(parse_patch("", text).subject), text) for text in texts]


def export(layout: Layout) -> list[str]:
    """Returns the names in order. Raises BuildError for uncommitted edits and for two commits of one title."""
    edited = git_output(layout.tree, "status", "--porcelain")
    if edited:
        what = f"{layout.tree} has uncommitted edits: {edited.splitlines()[0].strip()}"
        raise BuildError(what, "commit them there (or git commit --fixup and rebase), then export")
    written = format_commits(layout.tree)
    names = [name for name, _ in written]
    if len(set(names)) != len(names):
        raise BuildError(f"two commits give the same file name: {sorted(names)}", "give one another title")
    for old in set(read_series(layout.patches)) - set(names):
        (layout.patches / old).unlink(missing_ok=True)
    for name, text in written:
        (layout.patches / name).write_bytes(text)
    (layout.patches / "series").write_text("".join(f"{name}\n" for name in names), encoding="ascii")
    write_table(layout.patches)
    return names


def table(patches: list[Patch]) -> str:
    """One Markdown row per patch: group, file, size, status. The file is named after the title."""
    rows = ["| group | patch | added lines | upstream |", "|---|---|---|---|"]
    rows += [f"| {p.group} | `{p.name}` | {p.n_added_lines} | {p.status} |" for p in patches]
    return "\n".join(rows)


def readme_with_table(readme: str, patches: list[Patch]) -> str:
    """The README with its table made anew. Raises BuildError when the two markers are not there."""
    begin, found, rest = readme.partition(TABLE_BEGIN)
    _, found_end, end = rest.partition(TABLE_END)
    if not found or not found_end:
        raise BuildError("patches/README.md has lost the markers of its table", f"put back {TABLE_BEGIN}, {TABLE_END}")
    return f"{begin}{TABLE_BEGIN}\n{table(patches)}\n{TABLE_END}{end}"


def write_table(folder: Path) -> None:
    readme = folder / "README.md"
    readme.write_text(readme_with_table(readme.read_text(encoding="utf-8"), read_patches(folder)), encoding="utf-8")
