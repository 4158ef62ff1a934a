"""What of the series applies on another version of the package: patches/variants/VERSION.

Its `series` names the patches that apply there, in order: the first so many of the whole series. A patch that lies
next to it was rebased for that version and takes the place of the one of the same name; its message stays the same.
"""

from __future__ import annotations

from pathlib import Path

from build_support.export import format_commits
from build_support.git import git, git_output
from build_support.series import Patch, parse_patch, read_series, series_files
from build_support.tree import BASE


def variant_folder(patches: Path, version: str) -> Path:
    return patches / "variants" / version


def files_for(patches: Path, version: str) -> list[Path]:
    """The patches to apply on `version`, in order: all of the series where it has no folder of its own."""
    folder = variant_folder(patches, version)
    if not folder.is_dir():
        return series_files(patches)
    return [folder / name if (folder / name).is_file() else patches / name for name in read_series(folder)]


def read_variants(patches: Path) -> list[Patch]:
    """Each rebased patch, named with its folder."""
    files = sorted((patches / "variants").glob("*/*.patch"))
    return [parse_patch(str(path.relative_to(patches)), path.read_bytes()) for path in files]


def variant_problems(patches: Path) -> list[str]:
    """What does not fit together between the series and each folder of variants."""
    found = []
    for folder in sorted((patches / "variants").glob("*/")):
        names = read_series(folder)
        where = f"variants/{folder.name}"
        if names != read_series(patches)[: len(names)]:
            found.append(f"{where}/series is not the beginning of the series")
        for path in sorted(folder.glob("*.patch")):
            if path.name not in names:
                found.append(f"{where}/{path.name} is not in {where}/series")
            elif _message(path) != _message(patches / path.name):
                found.append(f"{where}/{path.name}: its message is not that of the patch that it replaces")
    return found


def _message(path: Path) -> bytes:
    """Author, date, subject and text: all that `git am` takes apart from the changes."""
    return path.read_bytes().partition(b"\n---\n")[0]


def write_variants(tree: Path, patches: Path, version: str) -> list[str]:
    """Writes what `version` needs from `tree`, where the series was rebased; returns the names of the rebased ones.

    A patch that applies as it is, without a merge, and gives the same files needs no variant.
    """
    folder = variant_folder(patches, version)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.patch"):
        old.unlink()
    commits = git_output(tree, "rev-list", "--reverse", f"{BASE}..HEAD").split()
    written = format_commits(tree)
    (folder / "series").write_text("".join(f"{name}\n" for name, _ in written), encoding="ascii")
    rebased = []
    for commit, (name, text) in zip(commits, written, strict=True):
        if not _gives(tree, patches / name, commit):
            (folder / name).write_bytes(text)
            rebased.append(name)
    return rebased


def _gives(tree: Path, patch: Path, commit: str) -> bool:
    """Whether the patch, applied on the parent of `commit`, gives its files. Uses the index; HEAD and files stay."""
    git_output(tree, "read-tree", f"{commit}~")
    applied = git(tree, "apply", "--cached", str(patch)).returncode == 0
    same = applied and git_output(tree, "write-tree") == git_output(tree, "rev-parse", f"{commit}^{{tree}}")
    git_output(tree, "read-tree", "HEAD")
    return same
