"""Tries the series on another version of the package, and shows what moved. Changes the pin only when told to."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git, git_output
from build_support.layout import Layout
from build_support.pin import Pin, read_pin
from build_support.series import series_files
from build_support.source import Fetch, fetch_with_pip, sha256_of, unpack_tree
from build_support.tree import BASE, Say, commit_base, ensure_tree


def bump(layout: Layout, version: str, commit: str, say: Say, fetch: Fetch = fetch_with_pip) -> tuple[Pin, str]:
    """The pin for `version` and the range-diff of the series. Raises BuildError at the first patch that fails.

    `commit` is the upstream commit of that version, as its release notes name it.
    """
    pin = replace(read_pin(layout.pin_file), version=version, upstream_commit=commit, sha256="")
    old = ensure_tree(layout, say)
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="bumping-") as temporary:
        archive = fetch(pin, Path(temporary))
        pin = replace(pin, sha256=sha256_of(archive))
        fresh = Path(temporary) / "llama.cpp"
        unpack_tree(archive, fresh)
        pin = replace(pin, ggml_version=ggml_version(fresh))
        commit_base(fresh, pin)
        git_output(fresh, "fetch", "--quiet", str(old), "+HEAD:refs/heads/old", f"+{BASE}:refs/heads/old-base")
        apply_three_way(fresh, series_files(layout.patches), say)
        difference = git_output(fresh, "range-diff", "old-base..old", f"{BASE}..HEAD")
        shutil.rmtree(fresh)
    return pin, difference


def ggml_version(tree: Path) -> str:
    """Major.minor.patch, as the tree's ggml/CMakeLists.txt sets them."""
    text = (tree / "ggml" / "CMakeLists.txt").read_text(encoding="utf-8")
    parts = []
    for part in ("MAJOR", "MINOR", "PATCH"):
        parts.append(text.partition(f"set(GGML_VERSION_{part} ")[2].partition(")")[0])
    return ".".join(parts)


def apply_three_way(tree: Path, patches: list[Path], say: Say) -> None:
    """Like apply_series, but lets git merge what only moved: the objects of the old base are there."""
    for path in patches:
        done = git(tree, "am", "--quiet", "--3way", "--keep-cr", str(path))
        if done.returncode != 0:
            files = git_output(tree, "diff", "--name-only", "--diff-filter=U").splitlines()
            git(tree, "am", "--abort")
            said = (done.stdout + done.stderr).strip().splitlines()[:8]
            why = "\n    ".join([f"conflict in {file}" for file in files] or said)
            remedy = "rebase that commit by hand in the tree of the new version, then export"
            raise BuildError(f"patches/{path.name} does not apply there:\n    {why}", remedy)
        say(f"patch: {path.name}")
