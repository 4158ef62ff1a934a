"""The text that `/metrics` answers: llama-server's `llamacpp:` names unchanged, and those of preemption with them.

A leaf and pure: turns the counters of one snapshot into bytes. Keeps no totals of its own and starts no thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pyggml_server.published import Counters

PREFIX = "llamacpp:"
GAP_HISTOGRAMS = ("token_gap_seconds", "survivor_gap_seconds")
# llama-server has no histograms: what reads its text may want a TYPE line for each series without labels. With the
# empty label set written out these are the same series.
_HISTOGRAM_TOTAL = re.compile(rb"^(llamacpp:\w+_gap_seconds_(?:sum|count)) ", re.MULTILINE)


class Value(NamedTuple):
    """One series without labels: its name after the prefix, its help line, its value now."""

    name: str
    help: str
    value: float


def render(counters: Counters) -> bytes:
    """The exposition text (format 0.0.4, UTF-8) of one snapshot's counters."""
    text = generate_latest(CountersCollector(counters))
    # llama-server's one counter without the suffix that the client library puts on every counter
    text = text.replace(b"llamacpp:n_tokens_max_total ", b"llamacpp:n_tokens_max ")
    return _HISTOGRAM_TOTAL.sub(rb"\1{} ", text)


class CountersCollector(Collector):
    """Shows one snapshot's counters to prometheus_client."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Every metric, llama-server's first and in its order."""
        for entry in (*_stock_counters(self._counters), *preempt_counters(self._counters)):
            yield CounterMetricFamily(PREFIX + entry.name.removesuffix("_total"), entry.help, value=entry.value)
        for entry in (*_stock_gauges(self._counters), *preempt_gauges(self._counters)):
            yield GaugeMetricFamily(PREFIX + entry.name, entry.help, value=entry.value)
        if self._counters.drafts_accepted_per_pos:
            yield _accepted_per_position(self._counters)
        yield from _gap_histograms(self._counters)


def _stock_counters(c: Counters) -> tuple[Value, ...]:
    return (
        Value(
            "prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", c.prompt_tokens_total
        ),
        Value(
            "prompt_tokens_cached_total", "Number of prompt tokens reused from the cache", c.prompt_tokens_cached_total
        ),
        Value("prompt_seconds_total", "Total time spent processing prompts", c.prompt_seconds_total),
        Value("tokens_predicted_total", "Number of generation tokens processed", c.tokens_predicted_total),
        Value("tokens_predicted_seconds_total", "Total time spent generating tokens", c.tokens_predicted_seconds_total),
        Value(
            "n_decode_total",
            "Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding",
            c.n_decode_total,
        ),
        Value("n_tokens_max", "Largest observed sequence length (prompt + generation)", c.n_tokens_max),
        Value("spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated", c.draft_tokens_total),
        Value(
            "spec_decode_num_accepted_tokens_total",
            "Speculative: Total draft tokens accepted by the target model",
            c.draft_tokens_accepted_total,
        ),
        Value(
            "spec_decode_num_drafts_total",
            "Speculative: Total speculative decoding verification steps",
            c.drafts_verified_total,
        ),
    )


def _accepted_per_position(c: Counters) -> Metric:
    family = CounterMetricFamily(
        PREFIX + "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position", labels=["position"]
    )
    for position, n_accepted in enumerate(c.drafts_accepted_per_pos):
        family.add_metric([str(position)], n_accepted)
    return family


def _stock_gauges(c: Counters) -> tuple[Value, ...]:
    return (
        Value(
            "prompt_tokens_seconds",
            "Average prompt throughput in tokens/s",
            _rate(c.prompt_steps_window, c.prompt_seconds_window),
        ),
        Value(
            "predicted_tokens_seconds",
            "Average generation throughput in tokens/s",
            _rate(c.predicted_steps_window, c.predicted_seconds_window),
        ),
        Value("requests_processing", "Number of requests processing", c.requests_processing),
        Value("requests_deferred", "Number of requests deferred", c.requests_deferred),
        Value(
            "n_busy_slots_per_decode",
            "Average number of busy slots per llama_decode() call",
            c.n_busy_slots_total / max(c.n_decode_total, 1),
        ),
    )


def preempt_counters(c: Counters) -> tuple[Value, ...]:
    """The counters that llama-server does not have."""
    return (
        Value("requests_finished_total", "Tasks that ended with a result", c.requests_finished_total),
        Value("requests_failed_total", "Tasks that ended with an error", c.requests_failed_total),
        Value(
            "requests_refused_total",
            "Requests refused because too many were waiting, or because they waited too long",
            c.requests_refused_total,
        ),
        Value(
            "requests_cancelled_total",
            "Tasks that ended because their client disconnected or the server stopped",
            c.requests_cancelled_total,
        ),
        Value("preemptions_total", "Sequences parked in host memory", c.preemptions_total),
        Value("restores_total", "Parked sequences copied back", c.restores_total),
        Value("rotations_total", "Sequences parked or dropped for another chat's turn", c.rotations_total),
        Value("recomputes_total", "Preempted sequences that were recomputed", c.recomputes_total),
        Value("preempt_refusals_total", "Parks refused by the memory budget", c.preempt_refusals_total),
        Value("spills_total", "Parked states written to files", c.spills_total),
        Value("fetches_total", "Parked states read back from files", c.fetches_total),
        Value("spilled_bytes_total", "Bytes of parked states written to files", c.spilled_bytes_total),
        Value("cache_disk_written_total", "Prompts of the prompt cache written to files", c.cache_disk_written_total),
        Value("cache_disk_read_total", "Prompts of the prompt cache read back from files", c.cache_disk_read_total),
        Value("parked_bytes_total", "Bytes copied to host memory by parks", c.parked_bytes_total),
        Value("restored_bytes_total", "Bytes copied back by restores", c.restored_bytes_total),
        Value("park_seconds_total", "Total time of parks, from order to completion", c.park_seconds_total),
        Value("restore_seconds_total", "Total time of restores, from order to completion", c.restore_seconds_total),
        Value("park_issue_seconds_total", "Time that decoding was stopped by parks", c.park_issue_seconds_total),
        Value(
            "restore_issue_seconds_total", "Time that decoding was stopped by restores", c.restore_issue_seconds_total
        ),
        Value(
            "restore_prefetch_seconds_total",
            "Part of the restore time in which states were copied to staging memory and held no cells",
            c.restore_prefetch_seconds_total,
        ),
        Value(
            "restore_scatter_seconds_total",
            "Time from a restore until its scatter from staging memory was found to be complete",
            c.restore_scatter_seconds_total,
        ),
    )


def preempt_gauges(c: Counters) -> tuple[Value, ...]:
    """The gauges that llama-server does not have."""
    return (
        Value("slots_held", "Slots that were parked by hand and not called back yet", c.slots_held),
        Value("preempt_ram_bytes", "Host memory that parked sequences hold now", c.preempt_ram_bytes),
        Value("preempt_disk_bytes", "Bytes of parked states in files now", c.preempt_disk_bytes),
        Value("preempt_disk_limit_bytes", "Bytes of parked states that files may have", c.preempt_disk_limit_bytes),
        Value("cache_disk_bytes", "Bytes of cached prompts in files now, or on their way there", c.cache_disk_bytes),
        Value("cache_disk_limit_bytes", "Bytes of cached prompts that files may have", c.cache_disk_limit_bytes),
        Value("pinned_pool_bytes", "Host memory that is pinned now", c.pinned_pool_bytes),
        Value(
            "side_copies_bytes",
            "Pinned host memory that cached prompts and slot files pass through",
            c.side_copies_bytes,
        ),
        Value("preempt_ram_limit_bytes", "Host memory that parked sequences may hold", c.preempt_ram_limit_bytes),
        Value("kv_cells", "Cells of the KV pool", c.kv_cells),
        Value("kv_cells_used", "Cells of the KV pool that are in use now", c.kv_cells_used),
    )


def _gap_histograms(c: Counters) -> Iterator[HistogramMetricFamily]:
    help_text = "Time between two tokens of a running slot"
    yield _histogram(GAP_HISTOGRAMS[0], help_text, c.gap_bounds_s, c.gap_counts, c.gap_sum_s)
    help_text += " while another slot was parked or restored"
    yield _histogram(GAP_HISTOGRAMS[1], help_text, c.gap_bounds_s, c.survivor_gap_counts, c.survivor_gap_sum_s)


def _histogram(
    name: str, help_text: str, bounds_s: Sequence[float], counts: Sequence[int], sum_s: float
) -> HistogramMetricFamily:
    uppers = [*(str(bound_s) for bound_s in bounds_s), "+Inf"]
    # before the first gap the engine may publish no buckets at all
    counts = counts or (0,) * len(uppers)
    cumulative = 0
    buckets: list[tuple[str, float]] = []
    for upper, count in zip(uppers, counts, strict=True):
        cumulative += count
        buckets.append((upper, cumulative))
    return HistogramMetricFamily(PREFIX + name, help_text, buckets=buckets, sum_value=sum_s)


def _rate(n_steps: int, seconds: float) -> float:
    return n_steps / seconds if seconds > 0 else 0.0
