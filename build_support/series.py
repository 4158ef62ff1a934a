"""The patch series: which patches there are, in which order, and what each says in its header.

Reads patches/ only; applying is tree.py's work and judging is lint.py's.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError

SECTIONS = ("Why", "What", "Limits", "Numbers", "Tests")
GROUP, STATUS = "Group", "Upstream-Status"


@dataclass(frozen=True)
class Patch:
    """One file of the series. `sections` maps Why, What, ... to their texts, one for each time that they stand there.

    `group` and `status` are what Group and Upstream-Status say.
    """

    name: str
    subject: str
    sections: dict[str, list[str]]
    group: str
    status: str
    n_added_lines: int
    text: bytes


def read_series(folder: Path) -> list[str]:
    """The patch file names in order. Blank lines and lines that start with # do not count."""
    try:
        lines = (folder / "series").read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise BuildError(f"{folder / 'series'} cannot be read: {error}", "git checkout patches/series") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def series_files(folder: Path) -> list[Path]:
    """Raises BuildError when the series names a patch that is not there."""
    files = [folder / name for name in read_series(folder)]
    for path in files:
        if not path.is_file():
            raise BuildError(
                f"patches/series names {path.name}, which is not there", f"git checkout patches/{path.name}"
            )
    return files


def series_hash(folder: Path) -> str:
    """Changes with the order, a name or a byte of any patch."""
    digest = hashlib.sha256()
    for path in series_files(folder):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def parse_patch(name: str, data: bytes) -> Patch:
    """Reads what `git format-patch` wrote. Missing parts come back empty; nothing is judged here."""
    text = data.decode("utf-8", errors="replace")
    head, _, diff = text.partition("\ndiff --git ")
    message = head.partition("\n---\n")[0]
    subject = re.search(r"^Subject: (?:\[PATCH[^\]]*\] )?(.*(?:\n[ \t].*)*)", message, re.MULTILINE)
    body = message.partition("\n\n")[2]
    group = re.search(rf"^{GROUP}: (.*)$", body, re.MULTILINE)
    status = re.search(rf"^{STATUS}: (.*)$", body, re.MULTILINE)
    added = sum(1 for line in diff.splitlines() if line.startswith("+") and not line.startswith("+++ "))
    return Patch(
        name=name,
        subject=re.sub(r"\s*\n\s+", " ", subject[1]) if subject else "",
        sections=_sections(body),
        group=group[1] if group else "",
        status=status[1] if status else "",
        n_added_lines=added,
        text=data,
    )


def _sections(body: str) -> dict[str, list[str]]:
    """`Why: text`, with the text going on until the next section, the group, the status line or the end."""
    starts = "|".join((*SECTIONS, GROUP, STATUS))
    found = re.findall(rf"^({starts}):[ \t]*(.*?)(?=^(?:{starts}):|\Z)", body, re.MULTILINE | re.DOTALL)
    sections: dict[str, list[str]] = {}
    for key, text in found:
        if key in SECTIONS and text.strip():
            sections.setdefault(key, []).append(" ".join(text.split()))
    return sections


def read_patches(folder: Path) -> list[Patch]:
    return [parse_patch(path.name, path.read_bytes()) for path in series_files(folder)]
