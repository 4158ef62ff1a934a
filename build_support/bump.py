"""Tries the series on another version of the package, and shows what moved. Changes the pin only when told to."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git, git_output
from build_support.layout import Layout
from build_support.patch_builds import patch_build
from build_support.patch_programs import programs_since
from build_support.pin import Pin, read_pin
from build_support.progress import Say
from build_support.source import Fetch, fetch_with_pip, sha256_of, unpack_tree
from build_support.tree import BASE, commit_base, ensure_tree
from build_support.variants import files_for


def bump(
    layout: Layout,
    version: str,
    commit: str,
    say: Say,
    fetch: Fetch = fetch_with_pip,
    *,
    keep: Path | None = None,
    build: bool = False,
) -> tuple[Pin, str]:
    """The pin for `version` and the range-diff of the series. Raises BuildError at the first patch that fails.

    `commit` is the upstream commit of that version, as its release notes name it. `keep` is a new folder for the tree,
    which stays there, with `git am` under way where a patch conflicts. `build` also builds it with all that applied and
    runs the tests of the patches.
    """
    if keep is not None and keep.exists():
        raise BuildError(f"{keep} is there already", "name a new folder")
    pin = replace(read_pin(layout.pin_file), version=version, upstream_commit=commit, sha256="")
    old = ensure_tree(layout, say)
    scratch = layout.vendor / "bumping"  # always there: what is built from it finds its objects again
    shutil.rmtree(scratch, ignore_errors=True)
    tree = keep or scratch / "llama.cpp"
    tree.parent.mkdir(parents=True, exist_ok=True)
    try:
        pin = _unpack(layout, pin, tree, fetch)
        git_output(tree, "fetch", "--quiet", str(old), "+HEAD:refs/heads/old", f"+{BASE}:refs/heads/old-base")
        patches = files_for(layout.patches, version)
        apply_three_way(tree, patches, say, abort=keep is None)
        if build:
            built = patch_build(layout, tree, f"patch-check-{version}")
            built.build(programs_since(tree, BASE))
            built.run(programs_since(tree, BASE), say)
        return pin, _range_diff(tree, len(patches))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(layout: Layout, pin: Pin, tree: Path, fetch: Fetch) -> Pin:
    """The tree of that version as one commit; returns the pin with what only the archive tells."""
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="fetching-") as temporary:
        archive = fetch(pin, Path(temporary))
        pin = replace(pin, sha256=sha256_of(archive))
        unpack_tree(archive, tree)
    pin = replace(pin, ggml_version=ggml_version(tree))
    commit_base(tree, pin)
    return pin


def _range_diff(tree: Path, n_patches: int) -> str:
    """Of the patches that were tried, against those of the same place in the series."""
    if n_patches == 0:
        return ""
    old = git_output(tree, "rev-list", "--reverse", "old-base..old").split()[:n_patches]
    return git_output(tree, "range-diff", "--creation-factor=999", f"old-base..{old[-1]}", f"{BASE}..HEAD")


def ggml_version(tree: Path) -> str:
    """Major.minor.patch, as the tree's ggml/CMakeLists.txt sets them."""
    text = (tree / "ggml" / "CMakeLists.txt").read_text(encoding="utf-8")
    parts = []
    for part in ("MAJOR", "MINOR", "PATCH"):
        parts.append(text.partition(f"set(GGML_VERSION_{part} ")[2].partition(")")[0])
    return ".".join(parts)


def apply_three_way(tree: Path, patches: list[Path], say: Say, *, abort: bool = True) -> None:
    """Like apply_series, but lets git merge what only moved: the objects of the old base are there."""
    for path in patches:
        done = git(tree, "am", "--quiet", "--3way", "--keep-cr", str(path))
        if done.returncode != 0:
            files = git_output(tree, "diff", "--name-only", "--diff-filter=U").splitlines()
            if abort:
                git(tree, "am", "--abort")
            said = (done.stdout + done.stderr).strip().splitlines()[:8]
            why = "\n    ".join([f"conflict in {file}" for file in files] or said)
            remedy = "see `Other versions of the package` in patches/README.md: rebase it there, keep it as a variant"
            raise BuildError(f"patches/{path.name} does not apply there:\n    {why}", remedy)
        say(f"patch: {path.name}")
