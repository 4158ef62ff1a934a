"""The documents as tests see them: their text, the cells of their tables, their code blocks. Reads only."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "patches" / "README.md",
        ROOT / "vendor" / "ggml" / "README.md",
    ]
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands under the heading `## title`, up to the next heading of that level. Raises KeyError."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise KeyError(f"there is no section {title!r}")
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The tables in order, each as rows of cells, the header row first and the ruler left out."""
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append([row for row in rows if not all(set(cell) <= {"-"} and cell for cell in row)])
    return found


def anchors(text: str) -> set[str]:
    """What links may name after `#`: the headings, in small letters, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
