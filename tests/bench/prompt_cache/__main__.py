"""What moving prompts to the prompt cache and back costs those who decode: `scripts/bench prompt_cache`.

Sixteen chats fill the slots. When all but one of them have ended four new ones come, whose slots give their prompts to
the prompt cache (and so do the slots that stay idle), and then four of the first come back. Measured are the times to
the first token and the gaps between tokens, also of the one chat that runs through: with our server, with copies that
stop everybody (--no-preempt-async), with llama-server, each with and without the cache. Compare inside one run only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.command_line import server_parser
from tests.bench.machine import default_model, ran_on
from tests.bench.prompt_cache.phases import Load, run_phases
from tests.bench.stall.servers import running

WITHOUT_CACHE = ("--cache-ram", "0")


@dataclass(frozen=True)
class Variant:
    """A program with its flags."""

    name: str
    program: tuple[str, ...]
    flags: tuple[str, ...] = ()


def main(words: list[str]) -> int:
    options = parse(words)
    load = Load(
        options.model or default_model(), options.chats, options.prompt, options.tokens, tuple(options.server_flags)
    )
    results: dict[str, Any] = {}
    for variant in variants(options):
        print(f"running {variant.name}", file=sys.stderr, flush=True)
        results[variant.name] = run(variant, load)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(document(words, load, results), indent=1) + "\n")
    return 0


def variants(options: argparse.Namespace) -> list[Variant]:
    """Those that were asked for, in the order in which they run."""
    ours, stock = tuple(options.ours), tuple(options.stock)
    listed = [
        Variant("ours", ours),
        Variant("sync", ours, ("--no-preempt-async",)),
        Variant("ours-no-cache", ours, WITHOUT_CACHE),
    ]
    if stock:
        listed += [Variant("stock", stock), Variant("stock-no-cache", stock, WITHOUT_CACHE)]
    return [variant for variant in listed if not options.only or variant.name in options.only.split(",")]


def run(variant: Variant, load: Load) -> dict[str, Any]:
    """One server through all phases. Raises RuntimeError."""
    size = ("-c", str(load.n_cells), "-np", str(load.n_chats), "--kv-unified", "--port", "0", "--host", "127.0.0.1")
    argv = [*variant.program, "-m", load.model, *size, *load.server_flags, *variant.flags]
    with running(argv, {}) as server:
        return run_phases(server, load)


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("prompt_cache", __doc__)
    parser.add_argument("--chats", type=int, default=16, help="slots, and chats that come first (default: 16)")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of each chat's prompt (default: 200)")
    parser.add_argument("--tokens", type=int, default=500, help="tokens that each chat generates (default: 500)")
    parser.add_argument("--only", default="", help="names of runs, with commas; default: all")
    return parser.parse_args(words)


def table(results: dict[str, Any]) -> str:
    """Two lines for each run: the new chats, and those that come back."""
    row = "{:<15} {:<5} {:>12} {:>13} {:>9} {:>10} {:>13} {:>8} {:>8}"
    names = ("run", "chats", "1st token ms", "slowest 1st", "p99 gap", "worst gap", "runner worst", "cached", "tok/s")
    lines = [row.format(*names)]
    for name, phases in results.items():
        for phase, told in phases.items():
            waits_ms = told["first_token_ms"]
            numbers = [
                waits_ms[len(waits_ms) // 2],
                waits_ms[-1],
                told["gaps_ms"].get("p99"),
                told["gaps_ms"].get("worst"),
            ]
            numbers.append(told["runner_gaps_ms"].get("worst"))
            shown = ["-" if number is None else f"{number:.1f}" for number in numbers]
            lines.append(row.format(name, phase, *shown, sum(told["n_cached"]), told["tokens_per_s"]))
    return "\n".join(lines)


def document(words: list[str], load: Load, results: dict[str, Any]) -> dict[str, Any]:
    """The results with what they ran on and the command."""
    return {
        "command": shlex.join(["scripts/bench", "prompt_cache", *words]),
        **ran_on(),
        "model": Path(load.model).name,
        "runs": results,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
