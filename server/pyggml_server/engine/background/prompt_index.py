"""Which prompts are in files, and which of them go when there is no room: values, no disk. Engine thread.

What is found is what llama.cpp's own prompt cache would find: see `find_better` in `server_kept_prompt.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyggml_server.engine.background.prompt_file import PromptHead, Tokens

LEAST_KEPT_SHARE = 0.25  # of a prompt: else too much of it would be lost


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A file. One of another model's has no head: it counts, and goes when its time has come."""

    name: str
    n_bytes: int
    head: PromptHead | None
    tokens: Tokens

    @property
    def adapters(self) -> bytes | None:
        return None if self.head is None else self.head.adapters


NO_ENTRY = Entry("", 0, None, np.empty(0, np.int32))
"""Of a job for which no file is wanted."""


class PromptIndex:
    """The files of one folder, the one that was used last at the end. They have `limit_bytes` at most."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: list[Entry] = []
        self.held_bytes = 0

    def __len__(self) -> int:
        """Prompts of this model."""
        return sum(entry.head is not None for entry in self._entries)

    def add(self, entry: Entry) -> None:
        """As the one that was used last."""
        self._entries.append(entry)
        self.held_bytes += entry.n_bytes

    def remove(self, entry: Entry) -> None:
        """Nothing where it is gone already."""
        if entry in self._entries:
            self._entries.remove(entry)
            self.held_bytes -= entry.n_bytes

    def note_use(self, entry: Entry) -> None:
        """It was used just now."""
        if entry in self._entries:
            self._entries.remove(entry)
            self._entries.append(entry)

    def knows(self, head: PromptHead, tokens: Tokens) -> bool:
        """Whether a file begins with these tokens."""
        return any(n_common(entry.tokens, tokens) == len(tokens) for entry in self._of(head.adapters))

    def make_room(self, head: PromptHead, tokens: Tokens, n_coming_bytes: int = 0) -> list[Entry]:
        """Take out what has to go for a file: those that it begins with, then the oldest. `n_coming_bytes` are others'
        that are not there yet."""
        gone = [entry for entry in self._of(head.adapters) if n_common(entry.tokens, tokens) == len(entry.tokens)]
        for entry in gone:
            self.remove(entry)
        return gone + self.trim(head.n_bytes + n_coming_bytes)

    def trim(self, n_more_bytes: int = 0) -> list[Entry]:
        """Take the oldest out until so many bytes find room."""
        gone = []
        while self._entries and self.held_bytes + n_more_bytes > self.limit_bytes:
            gone.append(self._entries[0])
            self.remove(self._entries[0])
        return gone

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._entries

    def find(
        self, adapters: bytes, have: Tokens, wanted: Tokens, coming: Sequence[Entry] = ()
    ) -> tuple[Entry, int] | None:
        """A prompt, there or coming, that has more in common with `wanted` than `have`, and how much; or None."""
        n_alike = n_common(have, wanted)
        best, best_keep, best_alike = None, n_alike / len(have) if len(have) else -1.0, n_alike
        for entry in [*self._of(adapters), *(entry for entry in coming if entry.adapters == adapters)]:
            n_alike = n_common(entry.tokens, wanted)
            keep = n_alike / len(entry.tokens)
            if keep >= LEAST_KEPT_SHARE and keep > best_keep and n_alike > best_alike:
                best, best_keep, best_alike = entry, keep, n_alike
        return None if best is None else (best, best_alike)

    def _of(self, adapters: bytes) -> Iterable[Entry]:
        return [entry for entry in self._entries if entry.adapters == adapters]


def n_common(a: Tokens, b: Tokens) -> int:
    """Tokens that both begin with."""
    n = min(len(a), len(b))
    differing = np.flatnonzero(a[:n] != b[:n])
    return int(differing[0]) if len(differing) else n
