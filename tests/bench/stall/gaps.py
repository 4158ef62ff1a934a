"""Gaps between the tokens of chats that run on while another is parked and restored. Pure: arithmetic on times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

PERCENTILES = (50.0, 90.0, 99.0, 99.9)


@dataclass
class Arrivals:
    """What one chat's stream brought, in seconds of one clock: tokens, and when it was told to be parked and back.

    error  why it did not come to its end; None if it did.
    """

    tokens_s: list[float] = field(default_factory=list)
    preempted_s: list[float] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)
    error: str | None = None


@dataclass(frozen=True)
class Gap:
    """Two tokens of one chat in a row. `is_during_copy`: another chat was away for a part of it."""

    seconds: float
    is_during_copy: bool


def away_intervals(chat: Arrivals) -> list[tuple[float, float]]:
    """From its last token before each park to its first one after the restore."""
    intervals = []
    for preempted_s, resumed_s in zip(chat.preempted_s, chat.resumed_s, strict=False):
        before = [t for t in chat.tokens_s if t <= preempted_s]
        after = [t for t in chat.tokens_s if t >= resumed_s]
        intervals.append((before[-1] if before else preempted_s, after[0] if after else resumed_s))
    return intervals


def shared_window(chats: Sequence[Arrivals]) -> tuple[float, float]:
    """While every chat runs: from the last first token to the first last one."""
    return max(chat.tokens_s[0] for chat in chats), min(chat.tokens_s[-1] for chat in chats)


def survivors_gaps(chats: Sequence[Arrivals]) -> list[Gap]:
    """Every gap inside the window that all chats share, but those of a chat that is away itself."""
    first_s, last_s = shared_window(chats)
    gaps = []
    for chat in chats:
        own_away = away_intervals(chat)
        others_away = [interval for other in chats if other is not chat for interval in away_intervals(other)]
        for begin_s, end_s in zip(chat.tokens_s, chat.tokens_s[1:], strict=False):
            if begin_s < first_s or end_s > last_s or _touches(begin_s, end_s, own_away):
                continue
            gaps.append(Gap(end_s - begin_s, _touches(begin_s, end_s, others_away)))
    return gaps


def tokens_per_s(chats: Sequence[Arrivals]) -> float:
    """Of all chats together, inside the window that they share."""
    first_s, last_s = shared_window(chats)
    n_tokens = sum(first_s < t <= last_s for chat in chats for t in chat.tokens_s)
    return n_tokens / (last_s - first_s)


def tokens_per_s_of_all(chats: Sequence[Arrivals]) -> float:
    """Of all chats together, from the first token of any to the last one of any."""
    times_s = [t for chat in chats for t in chat.tokens_s]
    return len(times_s) / (max(times_s) - min(times_s)) if len(times_s) > 1 else 0.0


def summary_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Count, percentiles (nearest rank) and worst of these durations, in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {"n": 0}
    ranks = {f"p{p:g}": ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in PERCENTILES}
    return {"n": len(ordered)} | {name: round(1e3 * s, 3) for name, s in (*ranks.items(), ("worst", ordered[-1]))}


def _touches(begin_s: float, end_s: float, intervals: Sequence[tuple[float, float]]) -> bool:
    return any(begin_s < away_end_s and away_begin_s < end_s for away_begin_s, away_end_s in intervals)
