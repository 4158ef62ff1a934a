"""What is run and in which order: both servers at each width, in turns, and what comes out of it as rows of numbers."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.stall.gaps import summary_ms
from tests.bench.stall.servers import running
from tests.bench.throughput import load
from tests.server_process import ServerProcess

ROOT = Path(__file__).parents[3]
OURS, STOCK = "pyggml_server", "llama_server"
SAMPLING: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "default": {}}


@dataclass(frozen=True)
class Plan:
    """One run. Tokens of each prompt and of each answer."""

    model: str
    programs: dict[str, tuple[str, ...]]
    widths: tuple[int, ...]
    n_prompt: int
    n_tokens: int
    n_rounds: int
    server_flags: tuple[str, ...]

    def argv(self, program: str, n_chats: int, n_cells_each: int, *flags: str) -> list[str]:
        size = ("-c", str(n_chats * n_cells_each), "-np", str(n_chats), "--kv-unified")
        place = ("--port", "0", "--host", "127.0.0.1")
        return [*self.programs[program], "-m", self.model, *size, *place, *self.server_flags, *flags]


@dataclass(frozen=True)
class Variant:
    """A pair of servers with the same flags."""

    prompt_cache: bool
    backend_sampling: bool

    @property
    def flags(self) -> tuple[str, ...]:
        return (*(() if self.prompt_cache else ("--cache-ram", "0")), *(("-bs",) if self.backend_sampling else ()))


def generate(plan: Plan, variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Chats that generate: a row for each width, variant and sampling."""
    rows = []
    for n_chats in plan.widths:
        n_cells_each = plan.n_prompt + plan.n_tokens + 64
        alone = decode_alone(plan, n_chats, n_cells_each)
        for variant in variants:
            with ExitStack() as started:
                servers = running_pair(started, plan, n_chats, n_cells_each, *variant.flags)
                for sampling in SAMPLING:
                    row = _row(plan, servers, n_chats, sampling)
                    rows.append({**_described(n_chats, variant, sampling), **row, **_limit(row, alone)})
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def running_pair(
    started: ExitStack, plan: Plan, n_slots: int, n_cells_each: int, *flags: str
) -> dict[str, ServerProcess]:
    """One server of each program, which `started` ends."""
    argv = {program: plan.argv(program, n_slots, n_cells_each, *flags) for program in plan.programs}
    return {program: started.enter_context(running(words, {})) for program, words in argv.items()}


def _described(n_chats: int, variant: Variant, sampling: str) -> dict[str, Any]:
    told = {"chats": n_chats, "prompt_cache": variant.prompt_cache, "sampling": sampling}
    return {**told, "backend_sampling": variant.backend_sampling}


def _row(plan: Plan, servers: dict[str, ServerProcess], n_chats: int, sampling: str) -> dict[str, Any]:
    """Medians over the rounds; the ratio is the median of each round's own."""
    rounds: dict[str, list[list[load.Stream]]] = {program: [] for program in servers}
    for i_round, program in turns(list(servers), plan.n_rounds):
        first = n_chats * (2 * i_round + list(SAMPLING).index(sampling))
        bodies = [body(plan, number, SAMPLING[sampling]) for number in range(first, first + n_chats)]
        rounds[program].append(load.run(servers[program].url, bodies))
    speeds = {program: [load.tokens_per_s(streams) for streams in of] for program, of in rounds.items()}
    row: dict[str, Any] = {
        "tokens_per_s": {program: round(statistics.median(of), 1) for program, of in speeds.items()},
        "tokens_per_s_of_rounds": {program: [round(speed, 1) for speed in of] for program, of in speeds.items()},
        "first_token_ms": {program: _summary(of, load.first_tokens_s) for program, of in rounds.items()},
        "gaps_ms": {program: _summary(of, load.gaps_s) for program, of in rounds.items()},
    }
    if guesses := {program: counted for program, of in rounds.items() if (counted := _guesses(of))["made"]}:
        row["guesses"] = guesses
    if STOCK in speeds:
        ratios = [ours / stock for ours, stock in zip(speeds[OURS], speeds[STOCK], strict=True)]
        row["ratio_to_llama_server"] = round(statistics.median(ratios), 3)
    return row


def _summary(
    rounds: Sequence[Sequence[load.Stream]], times_s: Callable[[Sequence[load.Stream]], list[float]]
) -> dict[str, float]:
    return summary_ms([seconds for streams in rounds for seconds in times_s(streams)])


def _guesses(rounds: Sequence[Sequence[load.Stream]]) -> dict[str, int]:
    """Of a draft model or of n-grams, as the last event of each chat tells."""
    timings = [stream.last.get("timings", {}) for streams in rounds for stream in streams]
    made, accepted = (sum(of.get(name, 0) for of in timings) for name in ("draft_n", "draft_n_accepted"))
    return {"made": made, "accepted": accepted}


def turns(programs: Sequence[str], n_rounds: int) -> Iterator[tuple[int, str]]:
    """Each round in the other order, so that nobody is always the first."""
    for i_round in range(n_rounds):
        for program in programs if i_round % 2 == 0 else reversed(programs):
            yield i_round, program


def body(plan: Plan, number: int, sampling: dict[str, Any], n_prompt: int = 0) -> dict[str, Any]:
    """A request with a prompt of its own."""
    prompt = [1000 + number % 500, *(1000 + (7 * number + i) % 500 for i in range(1, n_prompt or plan.n_prompt))]
    return {"prompt": prompt, "n_predict": plan.n_tokens, "ignore_eos": True, "seed": number, **sampling}


def decode_alone(plan: Plan, n_chats: int, n_cells_each: int) -> float:
    """Tokens per second, the best of two runs: it is a limit."""
    words = [str(n_chats), str(plan.n_prompt), str(plan.n_tokens)]
    flags = plan.argv(OURS, n_chats, n_cells_each, "--cache-ram", "0")[len(plan.programs[OURS]) :]
    command = [sys.executable, "-m", "tests.bench.throughput.decode_alone", *words, *flags]
    speeds = []
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the decode alone failed:\n{done.stderr[-2000:]}")
        speeds.append(float(json.loads(done.stdout.splitlines()[-1])["tokens_per_s"]))
    return max(speeds)


def _limit(row: dict[str, Any], alone: float) -> dict[str, Any]:
    speed = row["tokens_per_s"][OURS]
    return {"decode_alone_tokens_per_s": round(alone, 1), "ratio_to_decode_alone": round(speed / alone, 3)}
