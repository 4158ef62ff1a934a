"""Prompt processing: many prompts at once, and one long prompt among chats that generate. Both servers in turns."""

from __future__ import annotations

import statistics
import threading
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

from tests.bench.throughput import load
from tests.bench.throughput.rounds import OURS, STOCK, Plan, body, running_pair, turns

N_PROMPTS, N_CHATS = 16, 8
N_LONG = 4  # the long prompt is so many times as long


def measure(plan: Plan, n_prompt: int) -> dict[str, Any]:
    """Prompt tokens per second of N_PROMPTS prompts; the longest gap of N_CHATS chats during one long prompt."""
    n_slots = max(N_PROMPTS, N_CHATS + 1)
    n_cells_each = n_prompt + plan.n_prompt + 4 * plan.n_tokens + N_LONG * n_prompt // N_CHATS
    speeds: dict[str, list[float]] = {program: [] for program in plan.programs}
    gaps_ms: dict[str, list[float]] = {program: [] for program in plan.programs}
    with ExitStack() as started:
        servers = running_pair(started, plan, n_slots, n_cells_each, "--cache-ram", "0")
        for i_round, program in turns(list(servers), plan.n_rounds):
            url, first = servers[program].url, i_round * 2 * n_slots
            speeds[program].append(_prompts_at_once(plan, url, first, n_prompt))
            gaps_ms[program].append(_gap_during(plan, url, first + n_slots, N_LONG * n_prompt))
    told: dict[str, Any] = {
        "prompts": N_PROMPTS,
        "prompt_tokens": n_prompt,
        "prompt_tokens_per_s": {program: round(statistics.median(of), 1) for program, of in speeds.items()},
        "chats_beside": N_CHATS,
        "long_prompt_tokens": N_LONG * n_prompt,
        "longest_gap_ms": {program: round(statistics.median(of), 1) for program, of in gaps_ms.items()},
    }
    if STOCK in plan.programs:
        told["ratio_to_llama_server"] = round(statistics.median(speeds[OURS]) / statistics.median(speeds[STOCK]), 3)
    return told


def _prompts_at_once(plan: Plan, url: str, first: int, n_prompt: int) -> float:
    bodies = [{**body(plan, first + i, {}, n_prompt), "n_predict": 2} for i in range(N_PROMPTS)]
    streams = load.run(url, bodies)
    return N_PROMPTS * n_prompt / max(load.first_tokens_s(streams))


def _gap_during(plan: Plan, url: str, first: int, n_prompt: int) -> float:
    """The longest gap of any of the chats while the long prompt is processed, in milliseconds."""
    chats: list[load.Stream] = []
    have_begun = threading.Event()
    bodies = [{**body(plan, first + i, {}), "n_predict": 4 * plan.n_tokens} for i in range(N_CHATS)]
    others = threading.Thread(target=lambda: chats.extend(load.run(url, bodies, have_begun)))
    others.start()
    have_begun.wait()
    long = load.run(url, [{**body(plan, first + N_CHATS, {}, n_prompt), "n_predict": 2}])[0]
    others.join()
    if not chats:
        raise RuntimeError("the chats during the long prompt did not end well")
    times_s = [chat.events_s for chat in chats]
    return 1e3 * max(
        after - before
        for of in times_s
        for before, after in pairwise(of)
        if after > long.sent_s and before < long.events_s[0]
    )
