"""How many random traces ran to their end in this test session, for the summary that pytest prints."""

from __future__ import annotations

_passes_of_traces: list[int] = []


def note_trace(n_passes: int) -> None:
    """One more trace, of so many passes, ended with every invariant intact."""
    _passes_of_traces.append(n_passes)


def passes_of_traces() -> list[int]:
    """The passes of each trace of this process."""
    return list(_passes_of_traces)


def told() -> str:
    """The summary; empty if none ran."""
    n_traces, n_passes = len(_passes_of_traces), sum(_passes_of_traces)
    return f"planner: {n_traces} random traces of {n_passes} passes held every invariant" if n_traces else ""
