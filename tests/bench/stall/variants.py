"""The servers that are compared, and runs of each: its chats' gaps, and what its log says of copies."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.stall.chats import check_ended_well, run_chats
from tests.bench.stall.gaps import Arrivals, Gap, summary_ms, survivors_gaps, tokens_per_s, tokens_per_s_of_all
from tests.bench.stall.servers import running

N_CHATS = 4
_COPY = re.compile(
    r"(parked|restored) task .*?, ([\d.]+) MiB, issued in ([\d.]+) ms, completed after ([\d.]+) ms, ([\d.]+) GB/s"
)
_BANNER = re.compile(r"preemption: (.*)")


@dataclass(frozen=True)
class Variant:
    """A program with its flags. `forces_parks`: each chat is parked after every so many of its tokens.

    is_short  of cells: it gets the pool of `Load.n_cells_short`, and parks only because it has to.
    """

    name: str
    what: str
    program: tuple[str, ...]
    flags: tuple[str, ...] = ()
    forces_parks: bool = True
    is_short: bool = False


@dataclass(frozen=True)
class Load:
    """What every variant gets."""

    model: str
    n_prompt: int
    n_tokens: int
    every_n_tokens: int
    server_flags: tuple[str, ...]
    n_cells_short: int = 0

    @property
    def n_cells(self) -> int:
        """Room for every chat at once and one more: nothing but the forced parks shall happen."""
        return (N_CHATS + 1) * (self.n_prompt + self.n_tokens + 64)

    def n_cells_of(self, variant: Variant) -> int:
        """The pool that this variant gets."""
        return self.n_cells_short if variant.is_short else self.n_cells


def variants(ours: Sequence[str], stock: Sequence[str]) -> list[Variant]:
    """In the order in which they run. `stock` may be empty: then it is left out."""
    control = (sys.executable, "-m", "tests.bench.stall.control_server")
    no_async = ("--no-preempt-async",)
    listed = [
        Variant("constant", "pyggml-server, no parks", tuple(ours), forces_parks=False),
        Variant("control", "parks that copy nothing", control),
        Variant("async", "asynchronous copies", tuple(ours)),
        Variant("sync", "--no-preempt-async", tuple(ours), no_async),
        Variant("short", "asynchronous copies, a pool that fills", tuple(ours), forces_parks=False, is_short=True),
    ]
    if stock:
        listed.append(Variant("stock", "llama-server, which cannot park", tuple(stock), forces_parks=False))
        what = "llama-server, a pool that fills"
        listed.append(Variant("stock_short", what, tuple(stock), forces_parks=False, is_short=True))
    return listed


@dataclass(frozen=True)
class Outcome:
    """One run of one variant."""

    log: str
    chats: tuple[Arrivals, ...]

    @property
    def gaps(self) -> list[Gap]:
        """None where a chat had no token at all."""
        return survivors_gaps(self.chats) if all(chat.tokens_s for chat in self.chats) else []


def run(variant: Variant, load: Load) -> Outcome:
    """Raises RuntimeError if a chat does not come to its end, where there are cells enough for all."""
    n_cells = load.n_cells_of(variant)
    size = ("-c", str(n_cells), "-np", str(N_CHATS), "--kv-unified", "--port", "0", "--host", "127.0.0.1")
    argv = [*variant.program, "-m", load.model, *size, *load.server_flags, *variant.flags]
    forcing = {"LLAMA_SERVER_PREEMPT_EVERY": str(load.every_n_tokens)} if variant.forces_parks else {}
    with running(argv, forcing) as server:
        chats = run_chats(server, N_CHATS, load.n_prompt, load.n_tokens, n_apart=max(1, load.every_n_tokens // N_CHATS))
    if not variant.is_short:
        check_ended_well(chats)
    return Outcome("".join(server.lines), tuple(chats))


def told(variant: Variant, load: Load, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Gaps of all these runs together in milliseconds, throughput (mean), and the copies that the logs tell of."""
    log = "".join(outcome.log for outcome in outcomes)
    banner = _BANNER.search(log)
    gaps = [gap for outcome in outcomes for gap in outcome.gaps]
    return {
        "what": variant.what,
        "banner": banner[1].strip() if banner else None,
        "n_runs": len(outcomes),
        "n_parks": sum(len(chat.preempted_s) for outcome in outcomes for chat in outcome.chats),
        "n_cells": load.n_cells_of(variant),
        "chats_finished": min(sum(chat.error is None for chat in outcome.chats) for outcome in outcomes),
        "tokens_per_s": _mean(tokens_per_s(outcome.chats) for outcome in outcomes if outcome.gaps),
        "tokens_per_s_of_all": _mean(tokens_per_s_of_all(outcome.chats) for outcome in outcomes),
        "gaps_ms": summary_ms([gap.seconds for gap in gaps]),
        "gaps_beside_copies_ms": summary_ms([gap.seconds for gap in gaps if gap.is_during_copy]),
        "gaps_s": sorted(round(gap.seconds, 6) for gap in gaps),
        "parks": _copies(log, "parked"),
        "restores": _copies(log, "restored"),
    }


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return round(statistics.mean(found), 2) if found else 0.0


def _copies(log: str, kind: str) -> dict[str, float]:
    """Medians and worsts of the copies of this kind; empty where there was none."""
    found = [tuple(map(float, rest)) for what, *rest in _COPY.findall(log) if what == kind]
    if not found:
        return {}
    mib, issue_ms, completed_ms, gb_s = zip(*found, strict=True)
    return {
        "n": len(found),
        "mib_median": statistics.median(mib),
        "issue_ms_median": statistics.median(issue_ms),
        "issue_ms_worst": max(issue_ms),
        "completed_ms_median": statistics.median(completed_ms),
        "completed_ms_worst": max(completed_ms),
        "gb_s_median": statistics.median(gb_s),
    }
