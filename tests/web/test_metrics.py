"""The text of /metrics."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyggml_server.metrics import render
from pyggml_server.published import Counters

STOCK_COUNTERS = [
    "prompt_tokens_total",
    "prompt_tokens_cached_total",
    "prompt_seconds_total",
    "tokens_predicted_total",
    "tokens_predicted_seconds_total",
    "n_decode_total",
    "n_tokens_max",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_drafts_total",
]
STOCK_GAUGES = [
    "prompt_tokens_seconds",
    "predicted_tokens_seconds",
    "requests_processing",
    "requests_deferred",
    "n_busy_slots_per_decode",
]
OUR_COUNTERS = [
    "preemptions_total",
    "restores_total",
    "rotations_total",
    "recomputes_total",
    "preempt_refusals_total",
    "spills_total",
    "fetches_total",
    "spilled_bytes_total",
    "parked_bytes_total",
    "restored_bytes_total",
    "park_seconds_total",
    "restore_seconds_total",
    "park_issue_seconds_total",
    "restore_issue_seconds_total",
    "restore_prefetch_seconds_total",
    "restore_scatter_seconds_total",
    "requests_finished_total",
    "requests_failed_total",
    "requests_refused_total",
    "requests_cancelled_total",
]
OUR_GAUGES = [
    "preempt_disk_bytes",
    "preempt_disk_limit_bytes",
    "slots_held",
    "preempt_ram_bytes",
    "pinned_pool_bytes",
    "side_copies_bytes",
    "preempt_ram_limit_bytes",
]
OUR_GAUGES += ["kv_cells", "kv_cells_used"]


def read(text: str) -> dict[str, tuple[str, float]]:
    """{name: (type, value)} of the series without labels, read line by line as llama-server's own tests do."""
    kinds: dict[str, str] = {}
    series: dict[str, tuple[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            kinds[name] = kind
        elif not line.startswith("#") and "{" not in line:
            name, value = line.split(" ")
            series[name] = (kinds.get(name, "histogram"), float(value))
    return series


@pytest.mark.parametrize(
    ("names", "kind"),
    [(STOCK_COUNTERS, "counter"), (STOCK_GAUGES, "gauge"), (OUR_COUNTERS, "counter"), (OUR_GAUGES, "gauge")],
)
def test_every_name_has_its_type_and_a_help_line(names: list[str], kind: str) -> None:
    text = render(Counters()).decode()
    series = read(text)
    for name in names:
        assert series[f"llamacpp:{name}"][0] == kind
        assert f"# HELP llamacpp:{name} " in text


def test_counters_and_gauges_show_the_snapshots_values() -> None:
    shared = OUR_COUNTERS + OUR_GAUGES + STOCK_COUNTERS[:7]
    values = {name: number for number, name in enumerate(shared, start=10)}
    series = read(render(Counters(**values)).decode())  # type: ignore[arg-type]
    assert {name: series[f"llamacpp:{name}"][1] for name in shared} == values


def test_rates_are_steps_by_seconds_of_their_window() -> None:
    counters = Counters(prompt_steps_window=30, prompt_seconds_window=2.0, predicted_steps_window=5)
    series = read(render(counters).decode())
    assert series["llamacpp:prompt_tokens_seconds"][1] == 15.0
    assert series["llamacpp:predicted_tokens_seconds"][1] == 0.0


def test_busy_slots_are_an_average_per_decode() -> None:
    assert read(render(Counters(n_busy_slots_total=6, n_decode_total=4)).decode())[
        "llamacpp:n_busy_slots_per_decode"
    ] == (
        "gauge",
        1.5,
    )


def test_gaps_of_survivors_are_a_histogram_of_their_own_in_the_same_buckets() -> None:
    counters = Counters(gap_bounds_s=(0.01, 0.1), survivor_gap_counts=(0, 2, 1), survivor_gap_sum_s=0.75)
    families = {family.name: family for family in text_string_to_metric_families(render(counters).decode())}
    samples = {(s.name, s.labels.get("le")): s.value for s in families["llamacpp:survivor_gap_seconds"].samples}
    assert samples == {
        ("llamacpp:survivor_gap_seconds_bucket", "0.01"): 0.0,
        ("llamacpp:survivor_gap_seconds_bucket", "0.1"): 2.0,
        ("llamacpp:survivor_gap_seconds_bucket", "+Inf"): 3.0,
        ("llamacpp:survivor_gap_seconds_count", None): 3.0,
        ("llamacpp:survivor_gap_seconds_sum", None): 0.75,
    }


def test_a_series_without_labels_has_a_type_line_of_its_own() -> None:
    lines = render(Counters()).decode().splitlines()
    typed = {line.split(" ")[2] for line in lines if line.startswith("# TYPE ")}
    plain = {line.split(" ")[0] for line in lines if not line.startswith("#") and "{" not in line}
    assert plain - typed == set()


def test_gaps_are_a_cumulative_histogram() -> None:
    counters = Counters(gap_bounds_s=(0.01, 0.1), gap_counts=(5, 2, 1), gap_sum_s=3.5)
    families = {family.name: family for family in text_string_to_metric_families(render(counters).decode())}
    samples = {(s.name, s.labels.get("le")): s.value for s in families["llamacpp:token_gap_seconds"].samples}
    assert samples == {
        ("llamacpp:token_gap_seconds_bucket", "0.01"): 5.0,
        ("llamacpp:token_gap_seconds_bucket", "0.1"): 7.0,
        ("llamacpp:token_gap_seconds_bucket", "+Inf"): 8.0,
        ("llamacpp:token_gap_seconds_count", None): 8.0,
        ("llamacpp:token_gap_seconds_sum", None): 3.5,
    }
