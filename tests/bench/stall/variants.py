"""The servers that are compared, and one run of each: its chats' gaps, and what its log says of copies."""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.stall.chats import check_ended_well, run_chats
from tests.bench.stall.gaps import summary_ms, survivors_gaps, tokens_per_s, tokens_per_s_of_all
from tests.bench.stall.servers import running

N_CHATS = 4
_COPY = re.compile(
    r"(parked|restored) task .*?, ([\d.]+) MiB, issued in ([\d.]+) ms, landed after ([\d.]+) ms, ([\d.]+) GB/s"
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


def run(variant: Variant, load: Load) -> dict[str, Any]:
    """Gaps in milliseconds, throughput, and the copies that the log tells of.

    Raises RuntimeError if a chat does not come to its end, where there are cells enough for all.
    """
    n_cells = load.n_cells_short if variant.is_short else load.n_cells
    size = ("-c", str(n_cells), "-np", str(N_CHATS), "--kv-unified", "--port", "0", "--host", "127.0.0.1")
    argv = [*variant.program, "-m", load.model, *size, *load.server_flags, *variant.flags]
    forcing = {"LLAMA_SERVER_PREEMPT_EVERY": str(load.every_n_tokens)} if variant.forces_parks else {}
    with running(argv, forcing) as server:
        chats = run_chats(server, N_CHATS, load.n_prompt, load.n_tokens, n_apart=max(1, load.every_n_tokens // N_CHATS))
    if not variant.is_short:
        check_ended_well(chats)
    gaps = survivors_gaps(chats) if all(chat.tokens_s for chat in chats) else []
    log = "".join(server.lines)
    banner = _BANNER.search(log)
    return {
        "what": variant.what,
        "banner": banner[1].strip() if banner else None,
        "n_parks": sum(len(chat.preempted_s) for chat in chats),
        "n_cells": n_cells,
        "chats_finished": sum(chat.error is None for chat in chats),
        "tokens_per_s": round(tokens_per_s(chats), 2) if gaps else 0.0,
        "tokens_per_s_of_all": round(tokens_per_s_of_all(chats), 2),
        "gaps_ms": summary_ms([gap.seconds for gap in gaps]),
        "gaps_beside_copies_ms": summary_ms([gap.seconds for gap in gaps if gap.is_beside_copy]),
        "gaps_s": sorted(round(gap.seconds, 6) for gap in gaps),
        "parks": _copies(log, "parked"),
        "restores": _copies(log, "restored"),
    }


def _copies(log: str, kind: str) -> dict[str, float]:
    """Medians and worsts of the copies of this kind; empty where there was none."""
    found = [tuple(map(float, rest)) for what, *rest in _COPY.findall(log) if what == kind]
    if not found:
        return {}
    mib, issue_ms, landed_ms, gb_s = zip(*found, strict=True)
    return {
        "n": len(found),
        "mib_median": statistics.median(mib),
        "issue_ms_median": statistics.median(issue_ms),
        "issue_ms_worst": max(issue_ms),
        "landed_ms_median": statistics.median(landed_ms),
        "landed_ms_worst": max(landed_ms),
        "gb_s_median": statistics.median(gb_s),
    }
