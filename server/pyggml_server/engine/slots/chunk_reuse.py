"""--cache-reuse: parts of a cached prompt that the new prompt has at another place are shifted there. Engine thread.

The cells keep what they computed in their old surroundings, so the text may differ from a prompt that is computed
afresh: that is what the flag asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Move:
    """`n_tokens` tokens that are cached from position `source` on belong to `target`, which comes before it."""

    source: int
    target: int
    n_tokens: int


def moves(cached: list[int], prompt: list[int], n_equal: int, n_least: int) -> Iterator[Move]:
    """What can be reused behind the `n_equal` tokens that both begin with: chunks of `n_least` tokens or more.

    Each chunk continues the one before it in the prompt; what lies between them in the cache is lost.
    """
    source = target = n_equal
    while source < len(cached) and target < len(prompt):
        n = 0
        while source + n < len(cached) and target + n < len(prompt) and cached[source + n] == prompt[target + n]:
            n += 1
        if n >= n_least:
            yield Move(source, target, n)
            source += n
            target += n
        else:
            source += 1
