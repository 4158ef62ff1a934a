"""Totals and windows that `/metrics` shows. Engine thread writes; `publish` makes the frozen copy that others read."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from pyggml_server import published

GAP_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class GapHistogram:
    """Gaps between two tokens of a slot, by their length."""

    def __init__(self) -> None:
        self.counts = [0] * (len(GAP_BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, gap_s: float) -> None:
        """One more."""
        self.counts[bisect_left(GAP_BOUNDS_S, gap_s)] += 1
        self.sum_s += gap_s


class RateWindow:
    """Tokens and seconds since the last scrape. Written by the engine, reset from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompt = (0, 0.0)
        self._predicted = (0, 0.0)

    def add_prompt(self, n_tokens: int, seconds: float) -> None:
        with self._lock:
            self._prompt = (self._prompt[0] + n_tokens, self._prompt[1] + seconds)

    def add_predicted(self, n_steps: int, seconds: float) -> None:
        with self._lock:
            self._predicted = (self._predicted[0] + n_steps, self._predicted[1] + seconds)

    def reset(self) -> None:
        with self._lock:
            self._prompt = self._predicted = (0, 0.0)

    def values(self) -> tuple[tuple[int, float], tuple[int, float]]:
        """(prompt tokens, seconds), (decode steps, seconds)."""
        with self._lock:
            return self._prompt, self._predicted


class Counters:
    """Everything that is counted. The engine adds to `tally`; `publish` gives a copy that is never changed."""

    def __init__(self) -> None:
        self.tally = published.Counters(gap_bounds_s=GAP_BOUNDS_S)
        self.window = RateWindow()
        self._gaps = GapHistogram()
        self._survivor_gaps = GapHistogram()

    def count_gap(self, gap_s: float, *, is_survivors: bool) -> None:
        """One inter-token gap of a slot that kept running; `is_survivors`: while another was parked or restored."""
        self._gaps.add(gap_s)
        if is_survivors:
            self._survivor_gaps.add(gap_s)

    def count_prompt(self, n_tokens: int, seconds: float) -> None:
        """Prompt tokens decoded in one step that took `seconds`."""
        self.tally.prompt_tokens_total += n_tokens
        self.tally.prompt_seconds_total += seconds
        self.window.add_prompt(n_tokens, seconds)

    def count_predicted(self, n_tokens: int, n_steps: int, seconds: float) -> None:
        """The generation of a task that ended."""
        self.tally.tokens_predicted_total += n_tokens
        self.tally.tokens_predicted_seconds_total += seconds
        self.window.add_predicted(n_steps, seconds)

    def count_drafts(self, n_tokens: int, n_accepted: int, n_verified: int, n_accepted_per_pos: list[int]) -> None:
        """The guesses of a task that ended: how many, how many of them were right, in how many steps, and which."""
        tally = self.tally
        tally.draft_tokens_total += n_tokens
        tally.draft_tokens_accepted_total += n_accepted
        tally.drafts_verified_total += n_verified
        pairs = zip_longest(tally.drafts_accepted_per_pos, n_accepted_per_pos, fillvalue=0)
        tally.drafts_accepted_per_pos = tuple(before + now for before, now in pairs)

    def with_windows(self, latest: published.Counters) -> published.Counters:
        """What was published, with the rate windows of this moment. Any thread."""
        (prompt_steps, prompt_s), (predicted_steps, predicted_s) = self.window.values()
        return replace(
            latest,
            prompt_steps_window=prompt_steps,
            prompt_seconds_window=prompt_s,
            predicted_steps_window=predicted_steps,
            predicted_seconds_window=predicted_s,
        )

    def publish(self, **gauges: Any) -> published.Counters:
        """A copy with the gauges of this moment."""
        counters = replace(
            self.tally,
            gap_counts=tuple(self._gaps.counts),
            gap_sum_s=self._gaps.sum_s,
            survivor_gap_counts=tuple(self._survivor_gaps.counts),
            survivor_gap_sum_s=self._survivor_gaps.sum_s,
            **gauges,
        )
        return self.with_windows(counters)
