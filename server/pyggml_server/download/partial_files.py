"""Unfinished downloads by URL: each is continued only while the server still has the version that it was begun with.

llama.cpp appends to `FILE.downloadInProgress` whatever the server sends now; here the version is noted next to it.
Files of the hub need none: their names are their content's hash. Any thread, one at a time for one file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

PARTIAL_SUFFIX = ".downloadInProgress"
VERSION_SUFFIX = PARTIAL_SUFFIX + ".version"


class PartialFiles:
    """The unfinished downloads of some files, by the last part of their URL."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}

    def expect(self, paths: Iterable[str]) -> None:
        """These are going to be downloaded."""
        self._paths = {Path(path).name: Path(path) for path in paths}

    def begin(self, name: str, version: str) -> None:
        """The server has this version ("": it does not say): what is there of another goes."""
        path = self._paths.get(name) or self._only_path()
        if path is None:
            return
        partial, note = _with_suffix(path, PARTIAL_SUFFIX), _with_suffix(path, VERSION_SUFFIX)
        if partial.exists() and not (version and _text_of(note) == version):
            partial.unlink()
        if path.parent.is_dir():
            note.write_text(version, encoding="utf-8")

    def finish(self) -> None:
        """All of them are whole."""
        for path in self._paths.values():
            _with_suffix(path, VERSION_SUFFIX).unlink(missing_ok=True)

    def _only_path(self) -> Path | None:
        """A single file may be kept under another name."""
        return next(iter(self._paths.values())) if len(self._paths) == 1 else None


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
