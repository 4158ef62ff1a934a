"""How far two prompts are alike. Compares slices, not tokens: a prompt may have a hundred thousand of them."""

from __future__ import annotations


def common_prefix(a: list[int], b: list[int]) -> int:
    """Tokens that both begin with."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n  # the prefixes of length `low` are equal, those of length `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
