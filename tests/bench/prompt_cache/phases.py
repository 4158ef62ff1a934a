"""The chats of this measurement: many that end and leave their prompts, then a few new ones, then some that come back.

One chat runs through all of it. What it waits for between two tokens is what the copies of the others' prompts cost
somebody who has nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.bench.stall.chats import Chat
from tests.bench.stall.gaps import Arrivals, summary_ms
from tests.server_process import ServerProcess

N_LATER = 4  # new ones, and as many that come back


@dataclass(frozen=True)
class Load:
    """`n_chats` fill the slots, the one that runs through among them. Tokens of each prompt and of each answer."""

    model: str
    n_chats: int
    n_prompt: int
    n_tokens: int
    server_flags: tuple[str, ...]

    @property
    def n_runner_tokens(self) -> int:
        """Enough for all phases, however much slower the others make it."""
        return 5 * self.n_tokens

    @property
    def n_cells(self) -> int:
        """Room for everything: what is measured are the copies, not a pool that is short."""
        return (self.n_chats + N_LATER) * (self.n_prompt + self.n_tokens + 64) + 5 * self.n_tokens


def run_phases(server: ServerProcess, load: Load) -> dict[str, Any]:
    """Times to first tokens and gaps of each phase, in milliseconds. Raises RuntimeError for a chat that fails."""
    runner = Chat(server, 0, load.n_prompt, load.n_runner_tokens, caches_prompt=True)
    runner.start()
    runner.wait_for_tokens(1)
    first = _run(server, load, range(1, load.n_chats))
    phases = {
        "new": _run(server, load, range(load.n_chats, load.n_chats + N_LATER)),
        "back": _run(server, load, range(1, 1 + N_LATER)),
    }
    runner.join()
    _check([runner, *first, *(chat for chats in phases.values() for chat in chats)])
    return {name: _told(chats, runner.arrivals) for name, chats in phases.items()}


def _run(server: ServerProcess, load: Load, numbers: Sequence[int]) -> list[Chat]:
    chats = [Chat(server, i, load.n_prompt, load.n_tokens, caches_prompt=True) for i in numbers]
    for chat in chats:
        chat.start()
    for chat in chats:
        chat.join()
    return chats


def _check(chats: Sequence[Chat]) -> None:
    for chat in chats:
        if chat.error is not None:
            raise RuntimeError(f"chat {chat.number} did not end well: {chat.error}")


def _told(chats: Sequence[Chat], runner: Arrivals) -> dict[str, Any]:
    begin_s = min(chat.sent_s for chat in chats)
    end_s = max(chat.arrivals.tokens_s[-1] for chat in chats)
    waits_ms = sorted(round(1e3 * (chat.arrivals.tokens_s[0] - chat.sent_s), 3) for chat in chats)
    n_tokens = sum(len(chat.arrivals.tokens_s) for chat in chats)
    return {
        "first_token_ms": waits_ms,
        "gaps_ms": summary_ms([gap for chat in chats for gap in gaps_s(chat.arrivals.tokens_s, begin_s, end_s)]),
        "runner_gaps_ms": summary_ms(gaps_s(runner.tokens_s, begin_s, end_s)),
        "n_cached": [chat.n_cached for chat in chats],
        "tokens_per_s": round(n_tokens / (end_s - begin_s), 2),
    }


def gaps_s(tokens_s: Sequence[float], begin_s: float, end_s: float) -> list[float]:
    """Between two tokens in a row, where any of it lies inside the phase."""
    return [after - before for before, after in pairwise(tokens_s) if after > begin_s and before < end_s]
