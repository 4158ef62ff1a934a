"""The patched tree inside a source package: one archive with what a build needs, so that a build needs no network.

`pack_tree` writes it in a clone, `unpack_tree` makes a tree of it where there is no clone. The files are those of the
clone's tree, byte for byte.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.layout import Layout
from build_support.progress import Say
from build_support.source import extract, sha256_of

#: What a build of the libraries does not read.
LEFT_OUT = (
    ".github",
    "benches",
    "ci",
    "docs",
    "examples",
    "grammars",
    "media",
    "models",
    "requirements",
    "tests",
    "tools/ui/package-lock.json",
    "tools/ui/scripts",
    "tools/ui/src",
    "tools/ui/static",
    "tools/ui/tests",
)
STAMP = "pyggml-archive.sha256"


def archive_file(layout: Layout) -> Path:
    return layout.vendor / "llama.cpp.tar.xz"


def pack_tree(layout: Layout) -> Path:
    """Writes the archive of the tree's last commit. Blocks for some seconds. Needs a clone's tree."""
    archive = archive_file(layout)
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="packing-") as temporary:
        plain = Path(temporary) / "tree.tar"
        excluded = [f":!{name}" for name in LEFT_OUT]
        git_output(layout.tree, "archive", "--format=tar", f"--output={plain}", "HEAD", ".", *excluded)
        packed = Path(temporary) / archive.name
        with tarfile.open(plain) as source, tarfile.open(packed, "w:xz", preset=6) as target:
            for member in source:
                target.addfile(member, source.extractfile(member) if member.isfile() else None)
        packed.replace(archive)
    return archive


def is_packed(layout: Layout) -> bool:
    """Whether this is an unpacked source package: it has the archive, and no clone's tree."""
    return archive_file(layout).is_file() and not (layout.tree / ".git").exists()


def unpack_tree(layout: Layout, say: Say) -> Path:
    """The tree from the archive; does nothing if it is there already. Raises BuildError for a damaged archive."""
    archive, tree = archive_file(layout), layout.tree
    stamp, wanted = tree / STAMP, sha256_of(archive)
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return tree
    say(f"source: {archive.name}, which came with this package")
    with tempfile.TemporaryDirectory(dir=layout.vendor, prefix="unpacking-") as temporary:
        fresh = Path(temporary) / "llama.cpp"
        try:
            with tarfile.open(archive) as tar:
                extract(tar, fresh)
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BuildError(f"{archive} cannot be unpacked: {error}", "fetch the source package again") from error
        (fresh / STAMP).write_text(wanted, encoding="ascii")
        if tree.exists():
            shutil.rmtree(tree)
        fresh.replace(tree)
    return tree
