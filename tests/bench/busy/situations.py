"""One server alone, two side by side, and one beside programs that compute: how fast each is, and its longest gap."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.bench.stall.servers import running
from tests.bench.throughput import load
from tests.server_process import ServerProcess

ALONE, PAIR, BUILD = "alone", "two servers", "beside a build"
SITUATIONS = (ALONE, PAIR, BUILD)
MOST_TOKENS = 800
COMPUTE = "print('ready', flush=True)\nwhile True: pass"


@dataclass(frozen=True)
class Setting:
    """How both servers of a pair are started."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """One run: tokens of each answer, rounds in turns, and how many programs stand for a build."""

    settings: dict[str, Setting]
    n_tokens: int
    n_rounds: int
    n_computing: int


def measure(plan: Plan) -> list[dict[str, Any]]:
    """A row for each setting and situation. All servers stay up, and only those that are asked compute."""
    with ExitStack() as started:
        pairs = {
            name: [started.enter_context(running(setting.argv, setting.environment)) for _ in range(2)]
            for name, setting in plan.settings.items()
        }
        for pair in pairs.values():
            generate(pair, 4)  # the first request of a server takes longer
        return [row for situation in SITUATIONS for row in _rows(plan, pairs, situation)]


def _rows(plan: Plan, pairs: dict[str, list[ServerProcess]], situation: str) -> Iterator[dict[str, Any]]:
    speeds: dict[str, list[float]] = {name: [] for name in pairs}
    gaps_ms: dict[str, list[float]] = {name: [] for name in pairs}
    with computing(plan.n_computing if situation == BUILD else 0):
        for i_round in range(plan.n_rounds):
            for name in list(pairs) if i_round % 2 == 0 else reversed(pairs):
                asked = pairs[name] if situation == PAIR else pairs[name][:1]
                speed, gap_ms = together(overlapping(asked, plan.n_tokens))
                speeds[name].append(speed)
                gaps_ms[name].append(gap_ms)
    first = next(iter(pairs))
    for name in pairs:
        ratios = [speed / of_first for speed, of_first in zip(speeds[name], speeds[first], strict=True)]
        yield {
            "situation": situation,
            "setting": name,
            "tokens_per_s": round(statistics.median(speeds[name]), 1),
            "tokens_per_s_of_rounds": [round(speed, 1) for speed in speeds[name]],
            "ratio_to_first": round(statistics.median(ratios), 2),
            "longest_gap_ms": round(statistics.median(gaps_ms[name]), 1),
            "longest_gap_ms_of_rounds": [round(gap, 1) for gap in gaps_ms[name]],
        }


def generate(servers: Sequence[ServerProcess], n_tokens: int) -> list[load.Stream]:
    """One chat on each, all at once."""
    streams: dict[int, load.Stream] = {}
    body = {"prompt": "Once upon a time", "n_predict": n_tokens, "ignore_eos": True, "cache_prompt": False}

    def ask(i: int, url: str) -> None:
        (streams[i],) = load.run(url, [body])

    threads = [threading.Thread(target=ask, args=(i, server.url)) for i, server in enumerate(servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(streams) < len(servers):
        raise RuntimeError("a server did not end its answer well: see above")
    return list(streams.values())


def overlapping(servers: Sequence[ServerProcess], n_tokens: int) -> list[load.Stream]:
    """The same, with longer answers where these do not overlap. Raises RuntimeError if they never do."""
    while n_tokens <= MOST_TOKENS:
        streams = generate(servers, n_tokens)
        if _n_gaps(streams, *_span_s(streams)) > 0:
            return streams
        n_tokens *= 2
    raise RuntimeError(f"answers of {n_tokens // 2} tokens did not overlap")


def together(streams: Sequence[load.Stream]) -> tuple[float, float]:
    """Tokens per second of all, and the longest gap of any in ms, while all of them generate."""
    first_s, last_s = _span_s(streams)
    gaps_s = [
        after - before
        for stream in streams
        for before, after in pairwise(stream.events_s)
        if after > first_s and before < last_s
    ]
    return _n_gaps(streams, first_s, last_s) / (last_s - first_s), 1e3 * max(gaps_s)


def _span_s(streams: Sequence[load.Stream]) -> tuple[float, float]:
    return max(stream.events_s[0] for stream in streams), min(stream.events_s[-1] for stream in streams)


def _n_gaps(streams: Sequence[load.Stream], first_s: float, last_s: float) -> int:
    """Tokens that came in this time, each after another one in it."""
    n_events = [sum(first_s <= at_s <= last_s for at_s in stream.events_s) for stream in streams]
    return sum(max(0, n - 1) for n in n_events)


@contextmanager
def computing(n: int) -> Iterator[None]:
    """So many programs that compute and never wait."""
    programs = [subprocess.Popen([sys.executable, "-c", COMPUTE], stdout=subprocess.PIPE) for _ in range(n)]
    try:
        for program in programs:
            assert program.stdout is not None
            program.stdout.readline()
        yield
    finally:
        for program in programs:
            program.kill()
            program.communicate()
