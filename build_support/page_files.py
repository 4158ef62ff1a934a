"""The form in which the built chat page is kept and served: each file compressed, and one index of all files.

The server reads the index at start and sends each file as it is. Touches only the two folders that it is given.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

from build_support.build_error import BuildError

INDEX = "files.json"
SUFFIX = ".gz"
# the page does not work without these: finds a build that ended well but left something out
NEEDED = ("index.html", "sw.js", "manifest.webmanifest", "build.json", "_app/version.json")


def pack_page(built: Path, packed: Path) -> None:
    """Writes `packed`, a new folder, from what npm built. Raises BuildError where something of it is missing."""
    names = sorted(path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file())
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise BuildError(f"the build of the chat page left no {missing[0]}", "build it again")
    index = {}
    for name in names:
        # without a time stamp: the same content has the same tag everywhere
        content = gzip.compress((built / name).read_bytes(), mtime=0)
        target = packed / (name + SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        index[name] = hashlib.sha256(content).hexdigest()
    (packed / INDEX).write_text(json.dumps(index, indent=0), encoding="ascii")
