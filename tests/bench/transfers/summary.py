"""From samples to the rows of the table. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.transfers.program import DIRECTIONS

_Samples = Mapping[str, Sequence[float]]


def summaries(measured: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By pattern and way: `park`, `restore` (in one call) and `restore_in_steps` (as the server does it while others
    decode) are the product's own; _reference ends what they are compared with."""
    return {pattern: _rows(found) for pattern, found in measured["patterns"].items()}


def _rows(found: Mapping[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for direction in DIRECTIONS:
        contiguous_ms = statistics.median(found[f"contiguous_{direction}_reference"]["total_ms"])
        references = (f"contiguous_{direction}_reference", f"synchronous_{direction}_reference")
        for way in (direction, f"{direction}_in_steps", *references):
            if way in found:
                rows[way] = _row(found[way], found["bytes"], contiguous_ms)
    return rows


def _row(samples: _Samples, n_bytes: int, contiguous_ms: float) -> dict[str, float]:
    """Milliseconds are medians, with the worst next to them; the first copy, which sets things up, counts as well."""
    total_ms = statistics.median(samples["total_ms"])
    row = {"bytes": n_bytes, "gb_s": n_bytes / total_ms / 1e6, "ratio_to_contiguous": contiguous_ms / total_ms}
    for key, values in samples.items():
        row[key] = statistics.median(values)
        if key.endswith("_ms"):
            row[key.replace("_ms", "_worst_ms")] = max(values)
    return {key: round(value, 4) for key, value in row.items()}
