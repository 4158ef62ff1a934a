"""A small clone with a small upstream: a two-file tree in an archive, its pin, and an empty series. No network."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from build_support.export import export
from build_support.git import git_output
from build_support.layout import Layout
from build_support.pin import Pin, read_pin
from build_support.source import sha256_of
from build_support.tree import ensure_tree, move_tree

FILES = {
    "CMakeLists.txt": "project(small)\n",
    "include/llama.h": "int one(void);\n",
    "src/llama.cpp": "int one(void) { return 1; }\n",
    ".gitignore": "*.gguf\n",
    "models/small.gguf": "ignored by git, needed by tests\n",
}
PREFIX = "llama_cpp_python-1.2.3"


def write_archive(path: Path, files: dict[str, str], inside: str = "vendor/llama.cpp") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in {**files, ".git": "gitdir: elsewhere\n"}.items():
            member = tarfile.TarInfo(f"{PREFIX}/{inside}/{name}")
            member.size, member.mtime = len(text), 1_000_000_000
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@dataclass
class Clone:
    """One clone with its fake index; `n_fetches` counts what was asked of it."""

    layout: Layout
    served: Path
    lines: list[str] = field(default_factory=list)
    n_fetches: int = 0

    def fetch(self, _pin: Pin, folder: Path) -> Path:
        self.n_fetches += 1
        copy = folder / self.served.name
        copy.write_bytes(self.served.read_bytes())
        return copy

    def ensure(self, discard: bool = False) -> Path:
        return ensure_tree(self.layout, self.lines.append, self.fetch, discard)

    def export(self) -> None:
        """The commits of the tree become the series, and the tree stands on it."""
        export(self.layout)
        move_tree(self.layout, self.pin, self.lines.append)

    def set_pin(self, archive: Path, version: str = "1.2.3") -> None:
        self.served = archive
        pin = Pin("llama-cpp-python", version, sha256_of(archive), "abc", 0, "0.1.2")
        self.layout.pin_file.write_text(pin.to_json(), encoding="ascii")

    def set_series(self, *names: str) -> None:
        (self.layout.patches / "series").write_text("".join(f"{name}\n" for name in names), encoding="ascii")

    @property
    def pin(self) -> Pin:
        return read_pin(self.layout.pin_file)


MESSAGE = """{title}

Why: a test needs it.

What: it changes a line.

Limits: none.

Numbers: none.

Tests: this one.

Group: {group}
Upstream-Status: Pending [never sent]
"""


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    layout = Layout(tmp_path / "clone")
    for folder in (layout.vendor, layout.patches, layout.native):
        folder.mkdir(parents=True)
    made = Clone(layout, write_archive(tmp_path / "upstream-1.2.3.tar.gz", FILES))
    made.set_pin(made.served)
    made.set_series()
    readme = "# Patches\n\n<!-- table: made from the headers by scripts/patches export -->\n<!-- end of table -->\n"
    (layout.patches / "README.md").write_text(readme, encoding="ascii")
    return made


@pytest.fixture
def patched(clone: Clone, commit: Callable[..., str]) -> Clone:
    """The clone with one patch, exported and applied."""
    clone.ensure()
    commit("llama : return two")
    clone.export()
    return clone


@pytest.fixture
def commit(clone: Clone) -> Callable[..., str]:
    """Makes a commit in the tree, as a developer would; returns its id."""

    def make(
        title: str, path: str = "src/llama.cpp", text: str = "int one(void) { return 2; }\n", group: str = "A"
    ) -> str:
        tree = clone.layout.tree
        (tree / path).write_text(text, encoding="utf-8")
        git_output(tree, "add", path)
        git_output(tree, "commit", "--message", MESSAGE.format(title=title, group=group), author=True)
        return git_output(tree, "rev-parse", "HEAD")

    return make


def stamp_of(tree: Path) -> dict[str, str]:
    loaded: dict[str, str] = json.loads((tree / ".git" / "pyggml-stamp.json").read_text())
    return loaded
