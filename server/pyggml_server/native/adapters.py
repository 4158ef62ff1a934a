"""The scales of the LoRA adapters that a task's tokens are decoded with. Pure data: importable without the compiled
module."""

from __future__ import annotations

from dataclasses import dataclass

Scales = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Adapters:
    """One scale per adapter: `base` for the tokens before position `start`, `scales` from there on.

    They differ only for an activated adapter (aLoRA), which works from its invocation tokens on.
    """

    scales: Scales = ()
    base: Scales = ()
    start: int = 0

    def at(self, position: int) -> Scales:
        """The scales for the token at this position."""
        return self.base if position < self.start else self.scales

    def n_until_change(self, position: int, n_max: int) -> int:
        """How many of the next `n_max` tokens from this position on have the same scales."""
        return min(n_max, self.start - position) if position < self.start else n_max

    def n_common(self, other: Adapters, n_max: int) -> int:
        """How many of the first `n_max` tokens both decode with the same scales."""
        for position in (0, self.start, other.start):  # where either may begin to differ
            if position < n_max and self.at(position) != other.at(position):
                n_max = position
        return n_max


NO_ADAPTERS = Adapters()
