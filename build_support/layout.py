"""Where the build keeps things, all of it relative to one clone. Holds paths only; creates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The folders and files of one clone that the build reads and writes."""

    root: Path

    @property
    def pin_file(self) -> Path:
        return self.vendor / "pin.json"

    @property
    def vendor(self) -> Path:
        return self.root / "vendor" / "ggml"

    @property
    def tree(self) -> Path:
        """The unpacked, patched llama.cpp tree: a git repository, ignored by ours."""
        return self.vendor / "llama.cpp"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def native(self) -> Path:
        return self.root / "native"

    @property
    def build(self) -> Path:
        return self.root / "build"


def of_this_clone() -> Layout:
    return Layout(Path(__file__).resolve().parent.parent)
