"""The patched tree: made whole from pin and series, brought up to date when either changes, never half-made.

A new tree is unpacked, committed and patched under a temporary name and then renamed. A changed series is applied in
a second work tree; only when all of it applied does the tree itself move, and then only changed files are written,
so that ninja rebuilds little. The stamp is written last: a tree without a matching one is not taken for whole.
Commits that were made in the tree and not exported are never thrown away.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git, git_output
from build_support.layout import Layout
from build_support.packed_tree import is_packed, unpack_tree
from build_support.pin import Pin, read_pin
from build_support.progress import Say
from build_support.series import series_files, series_hash
from build_support.source import Fetch, archive_of, fetch_with_pip
from build_support.source import unpack_tree as unpack_base

BASE = "refs/heads/base"


@dataclass(frozen=True)
class Stamp:
    """What a whole tree was made of: archive hash, series hash, and the commit that this gave."""

    archive: str
    series: str
    head: str


def stamp_file(tree: Path) -> Path:
    return tree / ".git" / "pyggml-stamp.json"


def read_stamp(tree: Path) -> Stamp | None:
    """None when there is no tree or when it was not finished."""
    try:
        return Stamp(**json.loads(stamp_file(tree).read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        return None


def write_stamp(tree: Path, stamp: Stamp) -> None:
    written = stamp_file(tree).with_suffix(".new")
    written.write_text(json.dumps(asdict(stamp)), encoding="ascii")
    written.replace(stamp_file(tree))


def ensure_tree(layout: Layout, say: Say, fetch: Fetch = fetch_with_pip, discard: bool = False) -> Path:
    """The tree of the pin with the series applied; does nothing when that is what is there. Blocks.

    In a source package it is the tree that came with it.

    Raises BuildError for a wrong hash, a damaged archive, a patch that does not apply, and for work in the tree
    that would be lost (`discard` gives it up).
    """
    if is_packed(layout):
        return unpack_tree(layout, say)
    pin, tree = read_pin(layout.pin_file), layout.tree
    wanted, stamp = series_hash(layout.patches), read_stamp(tree)
    if stamp is not None and stamp.archive == pin.sha256 and stamp.series == wanted and not discard:
        if git_output(tree, "rev-parse", "HEAD") != stamp.head:
            say(f"note: {tree} has commits that patches/ does not have; building them (scripts/patches export)")
        return tree
    if tree.exists() and stamp is not None and not discard:
        refuse_to_lose_work(tree, stamp)
    if stamp is None or stamp.archive != pin.sha256:
        make_tree(layout, pin, say, fetch)
    else:
        move_tree(layout, pin, say)
    return tree


def refuse_to_lose_work(tree: Path, stamp: Stamp) -> None:
    remedy = "scripts/patches export keeps commits; scripts/patches apply --discard throws the work away"
    edited = git_output(tree, "status", "--porcelain", "--untracked-files=no")
    if edited:
        raise BuildError(f"{tree} must be rebuilt, but has edits: {edited.splitlines()[0].strip()}", remedy)
    head = git_output(tree, "rev-parse", "HEAD")
    if head != stamp.head:
        raise BuildError(f"{tree} must be rebuilt, but commit {head[:12]} in it is not in patches/", remedy)


def make_tree(layout: Layout, pin: Pin, say: Say, fetch: Fetch) -> None:
    """Fetches, unpacks, commits, patches; then takes the place of the tree that was there, if any."""
    layout.vendor.mkdir(parents=True, exist_ok=True)
    say(f"source: {pin.package} {pin.version} (llama.cpp {pin.upstream_commit})")
    archive = archive_of(pin, layout.vendor, fetch)
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="unpacking-") as temporary:
        fresh = Path(temporary) / "llama.cpp"
        unpack_base(archive, fresh)
        commit_base(fresh, pin)
        apply_series(fresh, series_files(layout.patches), say)
        write_stamp(fresh, Stamp(pin.sha256, series_hash(layout.patches), git_output(fresh, "rev-parse", "HEAD")))
        if layout.tree.exists():
            layout.tree.replace(Path(temporary) / "old")
        fresh.replace(layout.tree)


def commit_base(tree: Path, pin: Pin) -> None:
    """One commit with everything that was unpacked, ignored files too; the same id on every machine."""
    git_output(tree, "init", "--quiet", "--initial-branch", "patched")
    git_output(tree, "add", "--all", "--force")
    message = f"llama.cpp {pin.upstream_commit} as in {pin.package} {pin.version}"
    git_output(tree, "commit", "--quiet", "--no-verify", "--message", message, author=True)
    git_output(tree, "update-ref", BASE, "HEAD")


def apply_series(tree: Path, patches: list[Path], say: Say) -> None:
    """`git am` one by one. The first that does not apply raises BuildError, and the tree is left between commits."""
    for path in patches:
        done = git(tree, "am", "--quiet", "--keep-cr", str(path))
        if done.returncode != 0:
            git(tree, "am", "--abort")
            why = "\n    ".join((done.stderr or done.stdout).strip().splitlines()[:6])
            raise BuildError(
                f"patches/{path.name} does not apply:\n    {why}",
                "git checkout patches/ vendor/ggml/pin.json; after a change of the pin, scripts/patches bump shows why",
            )
        say(f"patch: {path.name}")


def apply_in_second_tree(layout: Layout, patches: list[Path], say: Say) -> str:
    """Applies `patches` on the base in a second work tree, removed afterwards; returns the commit. The tree stays."""
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="applying-") as temporary:
        second = Path(temporary) / "llama.cpp"
        try:
            git_output(layout.tree, "worktree", "add", "--quiet", "--detach", str(second), BASE)
            apply_series(second, patches, say)
            return git_output(second, "rev-parse", "HEAD")
        finally:
            shutil.rmtree(second, ignore_errors=True)
            git(layout.tree, "worktree", "prune")


def move_tree(layout: Layout, pin: Pin, say: Say) -> None:
    """Brings the tree to what the series gives now. Files that are the same keep their time stamps."""
    head = apply_in_second_tree(layout, series_files(layout.patches), say)
    stamp_file(layout.tree).unlink(missing_ok=True)
    git_output(layout.tree, "checkout", "--quiet", "--force", "-B", "patched", head)
    write_stamp(layout.tree, Stamp(pin.sha256, series_hash(layout.patches), head))
