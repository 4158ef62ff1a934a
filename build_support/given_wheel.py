"""`python -m build_support.given_wheel WHEEL`: whether a wheel was made from these very Python files. Reads only.

scripts/setup asks this of the wheel that PYGGML_WHEEL names, before it installs it in place of a build.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from build_support.build_error import BuildError
from build_support.layout import of_this_clone

REMEDY = "give the wheel of this commit, or unset PYGGML_WHEEL to build"


def refuse_other_sources(wheel: Path, root: Path) -> None:
    """Raises BuildError if `wheel` is none, or has Python files that differ from those below `root`."""
    if not zipfile.is_zipfile(wheel):
        raise BuildError(f"PYGGML_WHEEL={wheel} is not a wheel", REMEDY)
    folders = {"pyggml": root / "pyggml", "pyggml_server": root / "server" / "pyggml_server"}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.endswith(".py") and name.split("/")[0] in folders}
        packed = {name: archive.read(name) for name in names}
    here = {
        f"{package}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for package, folder in folders.items()
        for path in folder.rglob("*.py")
    }
    differing = sorted(name for name in {*packed, *here} if packed.get(name) != here.get(name))
    if differing:
        raise BuildError(f"{wheel.name} was made from other sources: {differing[0]} differs", REMEDY)


if __name__ == "__main__":
    try:
        refuse_other_sources(Path(sys.argv[1]), of_this_clone().root)
    except BuildError as error:
        raise SystemExit(f"pyggml: {error}") from None
