"""The chat page: llama.cpp's tools/ui, built with Node once for each state of its sources.

A built page is kept in the user's cache under a hash of its sources: the next set-up of any clone takes it from there.
If Node, npm or their registry is missing, the build says so in one line and goes on: the server works without the page.
Blocks for minutes when it builds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from build_support.build_error import BuildError
from build_support.layout import Layout
from build_support.packed_tree import is_packed
from build_support.page_build import CONFIG, LEFT_BEHIND, build_page
from build_support.pin import read_pin
from build_support.progress import Say

PLACE = Path("pyggml_server") / "web" / "chat_page"  # in the package
WITHOUT = "PYGGML_WITHOUT_PAGE"
# what of ours decides how the page comes out
RECIPE = ("page_build.py", "page_files.py", CONFIG)


def ensure_page(layout: Layout, tree: Path, say: Say, env: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the built page of this tree. None, once the reason has been said, where there is none.

    A source package brings its page along.
    """
    shipped = layout.root / "server" / PLACE
    if tree == layout.tree and is_packed(layout) and shipped.is_dir():
        return shipped
    if env.get(WITHOUT) == "1":
        say(f"no chat page: {WITHOUT}=1")
        return None
    try:
        kept = cache_folder(env) / page_key(layout, tree)
        if not kept.is_dir():
            say("chat page: building it with npm takes some minutes, once for this machine")
            _build_and_keep(layout, tree, kept, say, env)
        return kept
    except (BuildError, OSError) as error:
        why, remedy = (error.what, error.remedy) if isinstance(error, BuildError) else (error, "fix that and try again")
        say(f"no chat page at /: {why}; remedy: {remedy}, or set {WITHOUT}=1: the server works without the page")
        return None


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where built pages are kept."""
    named = env.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "pyggml" / "chat-page"


def page_key(layout: Layout, tree: Path) -> str:
    """A hash of everything that decides what the page is. Raises BuildError where the tree has no sources of it."""
    sources = tree / "tools" / "ui"
    if not (sources / "package-lock.json").is_file():
        raise BuildError(f"{sources} has no package-lock.json", "use a llama.cpp tree with its user interface")
    digest = hashlib.sha256(str(read_pin(layout.pin_file).upstream_build_number).encode())
    ours = {name: Path(__file__).with_name(name) for name in RECIPE}
    theirs = {path.relative_to(sources).as_posix(): path for path in _files(sources)}
    for name, path in [*ours.items(), *sorted(theirs.items())]:
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def put_page(page: Path, package_root: Path) -> Path:
    """Copies the built page to its place in the package below `package_root`, all at once; returns that place."""
    target = package_root / PLACE
    if page == target:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".chat_page-") as temporary:
        fresh = Path(temporary) / "fresh"
        shutil.copytree(page, fresh)
        if target.exists():
            target.replace(Path(temporary) / "old")
        fresh.replace(target)
    return target


def _files(sources: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(sources):
        folders[:] = [name for name in folders if name not in LEFT_BEHIND]
        found += [Path(folder) / name for name in names]
    return found


def _build_and_keep(layout: Layout, tree: Path, kept: Path, say: Say, env: Mapping[str, str]) -> None:
    """Kept whole or not at all, also where two builds end at once."""
    layout.build.mkdir(parents=True, exist_ok=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=layout.build, prefix="chat-page-") as folder,
        tempfile.TemporaryDirectory(dir=kept.parent, prefix=".new-") as unfinished,
    ):
        fresh = Path(unfinished) / "page"
        shutil.copytree(build_page(layout, tree, Path(folder), say, env), fresh)
        if not kept.is_dir():
            fresh.replace(kept)
