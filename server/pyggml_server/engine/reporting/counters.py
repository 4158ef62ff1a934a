"""Totals and windows that `/metrics` shows. Engine thread writes; `publish` makes the frozen copy that others read."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from pyggml_server import published

GAP_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(slots=True)
class Tally:
    """The running totals; names as in `published.Counters`."""

    prompt_tokens_total: int = 0
    prompt_tokens_cached_total: int = 0
    prompt_seconds_total: float = 0.0
    tokens_predicted_total: int = 0
    tokens_predicted_seconds_total: float = 0.0
    n_decode_total: int = 0
    n_busy_slots_total: int = 0
    n_tokens_max: int = 0
    draft_tokens_total: int = 0
    draft_tokens_accepted_total: int = 0
    drafts_verified_total: int = 0
    requests_finished_total: int = 0
    requests_failed_total: int = 0
    requests_cancelled_total: int = 0
    preemptions_total: int = 0
    restores_total: int = 0
    rotations_total: int = 0
    recomputes_total: int = 0
    preempt_refusals_total: int = 0
    parked_bytes_total: int = 0
    restored_bytes_total: int = 0
    park_seconds_total: float = 0.0
    restore_seconds_total: float = 0.0
    park_issue_seconds_total: float = 0.0
    restore_issue_seconds_total: float = 0.0
    restore_prefetch_seconds_total: float = 0.0
    restore_scatter_seconds_total: float = 0.0
    gap_sum_s: float = 0.0
    survivor_gap_sum_s: float = 0.0
    gap_counts: list[int] = field(default_factory=lambda: [0] * (len(GAP_BOUNDS_S) + 1))
    survivor_gap_counts: list[int] = field(default_factory=lambda: [0] * (len(GAP_BOUNDS_S) + 1))
    drafts_accepted_per_pos: list[int] = field(default_factory=list)


_LISTS = frozenset({"gap_counts", "survivor_gap_counts", "drafts_accepted_per_pos"})


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
    """Everything that is counted, and the frozen copy of it."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.window = RateWindow()

    def count_gap(self, gap_s: float, *, is_survivors: bool) -> None:
        """One inter-token gap of a slot that kept running; `is_survivors`: while another was parked or restored."""
        bucket = bisect_left(GAP_BOUNDS_S, gap_s)
        self.tally.gap_counts[bucket] += 1
        self.tally.gap_sum_s += gap_s
        if is_survivors:
            self.tally.survivor_gap_counts[bucket] += 1
            self.tally.survivor_gap_sum_s += gap_s

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
        tally.drafts_accepted_per_pos = [before + now for before, now in pairs]

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

    def publish(self, **gauges: int) -> published.Counters:
        """A frozen copy with the gauges of this moment."""
        tally = self.tally
        totals = {name: getattr(tally, name) for name in Tally.__slots__ if name not in _LISTS}
        counters = published.Counters(
            **totals,
            gap_bounds_s=GAP_BOUNDS_S,
            gap_counts=tuple(tally.gap_counts),
            survivor_gap_counts=tuple(tally.survivor_gap_counts),
            drafts_accepted_per_pos=tuple(tally.drafts_accepted_per_pos),
            **gauges,
        )
        return self.with_windows(counters)
