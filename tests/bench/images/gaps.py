"""Which gaps of chats lie in the time of a request with an image. Pure: arithmetic on times."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.stall.gaps import Arrivals


def gaps_in_and_outside(
    chats: Sequence[Arrivals], windows: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """Seconds between two tokens of a chat: those that a window has a part of, and the others."""
    inside: list[float] = []
    outside: list[float] = []
    for chat in chats:
        for begin_s, end_s in zip(chat.tokens_s, chat.tokens_s[1:], strict=False):
            is_inside = any(
                begin_s < window_end_s and end_s > window_begin_s for window_begin_s, window_end_s in windows
            )
            (inside if is_inside else outside).append(end_s - begin_s)
    return inside, outside
