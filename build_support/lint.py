"""Judges the patch series: headers, groups, characters, and whether series, files and README agree.

Reads patches/ only, so it is fast enough for every run of scripts/check. Applying is check.py's work.
"""

from __future__ import annotations

import re
from pathlib import Path

from build_support.build_error import BuildError
from build_support.export import readme_with_table
from build_support.groups import group_problems
from build_support.series import SECTIONS, STATUS, Patch, read_patches, read_series
from build_support.variants import read_variants, variant_problems

MAX_SUBJECT_COLUMNS = 72
STATUS_FORM = re.compile(r"(Pending|Submitted|Backport|Accepted|Inappropriate) \[.+\]$")
TITLE_FORM = re.compile(r"[a-z0-9-]+ : \S.*[^.]$")
LEFT_OPEN = re.compile(r"\bTODO\b|\bto be filled\b", re.IGNORECASE)


def patch_problems(patch: Patch) -> list[str]:
    """What is wrong with one patch, a sentence each; empty when nothing is."""
    found = []
    if not patch.text.isascii():
        line = next(n for n, text in enumerate(patch.text.splitlines(), 1) if not text.isascii())
        found.append(f"line {line} is not ASCII")
    if not TITLE_FORM.match(patch.subject):
        found.append(f"the subject {patch.subject!r} is not `<module> : <title>`")
    if len(patch.subject) > MAX_SUBJECT_COLUMNS:
        found.append(f"the subject has {len(patch.subject)} columns, at most {MAX_SUBJECT_COLUMNS} fit")
    found += [f"the header has no {name}: section" for name in SECTIONS if name not in patch.sections]
    found += [
        f"the header has {len(texts)} {name}: sections: a patch is one idea, split it"
        for name, texts in patch.sections.items()
        if len(texts) > 1
    ]
    found += [
        f"{name}: says {unwritten[0]!r}: write it"
        for name, texts in patch.sections.items()
        if (unwritten := LEFT_OPEN.search(" ".join(texts)))
    ]
    if not STATUS_FORM.match(patch.status):
        found.append(f"{STATUS}: {patch.status!r} is not `Pending [reason]` or another known status")
    return [f"{patch.name}: {problem}" for problem in found]


def folder_problems(folder: Path) -> list[str]:
    """What does not fit together between the series, the files and the README."""
    names = read_series(folder)
    files = {path.name for path in folder.glob("*.patch")}
    found = [f"series names {name} twice" for name in sorted({name for name in names if names.count(name) > 1})]
    found += [f"series names {name}, which is not there" for name in sorted(set(names) - files)]
    found += [f"{name} is not in series" for name in sorted(files - set(names))]
    return found


def readme_problems(folder: Path) -> list[str]:
    readme = (folder / "README.md").read_text(encoding="utf-8")
    try:
        current = readme == readme_with_table(readme, read_patches(folder))
    except BuildError as failure:
        return [failure.what]
    return [] if current else ["README.md: the table is not what the headers give; run scripts/patches export"]


def problems(folder: Path) -> list[str]:
    """All problems of the series in `folder`; the README and the headers are judged only when the files are there."""
    missing = folder_problems(folder)
    if missing:
        return missing
    patches = [*read_patches(folder), *read_variants(folder)]
    found = [problem for patch in patches for problem in patch_problems(patch)]
    return found + group_problems(read_patches(folder)) + variant_problems(folder) + readme_problems(folder)
