"""How few passes the chats of this measurement can take in a pool that is too small for all of them. Pure: arithmetic.

Whoever is out of the pool makes no tokens, whatever a copy costs. The fewest passes against those of a pool that never
fills is the throughput that parks and restores of no cost, chosen as well as can be, would leave if every pass took as
long: a measured ratio above it comes from narrower batches that take less time, one below it from the copies.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import combinations

N_BLOCKS = 32  # a chat's tokens are looked at in so many parts


def fewest_passes(n_chats: int, n_prompt: int, n_tokens: int, n_cells: int) -> int:
    """Passes until all chats have their tokens. An estimate, good to a few in a hundred: chats go on and pause in parts
    of `n_tokens / N_BLOCKS`, and do not grow within one.

    Raises ValueError where one chat alone does not fit.
    """
    block = math.ceil(n_tokens / N_BLOCKS)
    done = (N_BLOCKS,) * n_chats
    reached = {(0,) * n_chats: 0}
    line = deque(reached)
    while line:
        state = line.popleft()
        if state == done:
            return min(reached[state] * block, n_chats * n_tokens)
        for running in _running_sets(state, n_prompt, block, n_cells):
            after = tuple(sorted(n + (i in running) for i, n in enumerate(state)))
            if after not in reached:
                reached[after] = reached[state] + 1
                line.append(after)
    raise ValueError(f"a chat of {n_prompt} + {n_tokens} tokens does not fit into {n_cells} cells")


def _running_sets(state: tuple[int, ...], n_prompt: int, block: int, n_cells: int) -> Iterator[frozenset[int]]:
    """Sets of chats that fit together for the next part."""
    unfinished = [i for i, n in enumerate(state) if n < N_BLOCKS]
    for n_running in range(1, len(unfinished) + 1):
        for chosen in combinations(unfinished, n_running):
            if sum(n_prompt + state[i] * block for i in chosen) <= n_cells:
                yield frozenset(chosen)
