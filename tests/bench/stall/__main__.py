"""How long the chats that go on wait while another is parked and restored: `scripts/bench stall`.

Four chats run at once; each is parked after every N of its tokens, at another time than the others. Measured are the
gaps between two tokens of a chat that is not away itself, as a client sees them, with asynchronous copies, with
synchronous ones, in a control run with the same joins and leaves and no copies, without any parks, and with
llama-server. Compare inside one run only: machines differ.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from tests.bench.command_line import server_parser
from tests.bench.machine import default_model, ran_on
from tests.bench.stall.fewest_passes import fewest_passes
from tests.bench.stall.svg_plot import gaps_svg
from tests.bench.stall.variants import N_CHATS, Load, Outcome, run, told, variants


def main(words: list[str]) -> int:
    options = parse(words)
    load = Load(
        options.model or default_model(),
        options.prompt,
        options.tokens,
        options.every,
        tuple(options.server_flags),
        options.short,
    )
    chosen = [v for v in variants(options.ours, options.stock) if v.name in options.only.split(",") or not options.only]
    chosen = [variant for variant in chosen if load.n_cells_short or not variant.is_short]
    outcomes: dict[str, list[Outcome]] = {variant.name: [] for variant in chosen}
    for i in range(options.rounds):  # in turns, so that what changes with time changes all of them
        for variant in chosen:
            print(f"round {i + 1}, {variant.name}: {variant.what}", file=sys.stderr, flush=True)
            outcomes[variant.name].append(run(variant, load))
    results = {variant.name: told(variant, load, outcomes[variant.name]) for variant in chosen}
    print(table(results))
    for name, value in (verdict(results) | bound(load)).items():
        print(f"{name}: {value}")
    if options.plot:
        title = f"gaps of the chats that go on, a park every {options.every} tokens"
        Path(options.plot).write_text(gaps_svg(title, {name: result["gaps_s"] for name, result in results.items()}))
    if options.json:
        options.json.write_text(json.dumps(document(words, load, results), indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("stall", __doc__)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of each chat's prompt (default: 200)")
    parser.add_argument("--tokens", type=int, default=512, help="tokens that each chat generates (default: 512)")
    parser.add_argument("--every", type=int, default=64, help="tokens between two parks of a chat (default: 64)")
    parser.add_argument("--rounds", type=int, default=1, help="how often all runs are made (default: 1)")
    parser.add_argument("--short", type=int, default=0, help="cells of a pool that fills, 0: no such run (default: 0)")
    parser.add_argument("--only", default="", help="names of runs, with commas; default: all")
    parser.add_argument("--plot", help="write a picture here, as SVG")
    return parser.parse_args(words)


def table(results: dict[str, Any]) -> str:
    """A line for each run: all gaps, those during a copy, parks and throughput; then what each server said of parks."""
    row = "{:<9} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8}"
    lines = [
        row.format("run", "parks", "tok/s", "p50 ms", "p99 ms", "p99.9 ms", "worst ms", "during*", "issue ms", "GB/s")
    ]
    for name, result in results.items():
        gaps, parks = result["gaps_ms"], result["parks"]
        numbers = [gaps.get("p50"), gaps.get("p99"), gaps.get("p99.9"), gaps.get("worst")]
        numbers += [result["gaps_beside_copies_ms"].get("p99"), parks.get("issue_ms_median"), parks.get("gb_s_median")]
        shown = ["-" if number is None else f"{number:.2f}" for number in numbers]
        lines.append(row.format(name, result["n_parks"], f"{result['tokens_per_s']:.1f}", *shown))
    lines.append("* p99 of the gaps during which another chat was away for a part")
    return "\n".join([*lines, *(f"{name}: preemption {result['banner'] or '-'}" for name, result in results.items())])


def verdict(results: dict[str, Any]) -> dict[str, float]:
    """What users feel: gaps during a park or restore against the control's, and what a pool that fills costs.

    Only what the runs that were chosen can tell. `tok_s_ratio` counts from the first token of any chat to the last one.
    """
    found: dict[str, float] = {}
    if {"async", "control"} <= results.keys():
        ours, control = (results[name]["gaps_beside_copies_ms"] for name in ("async", "control"))
        if ours["n"] and control["n"]:
            found["gap_ratio_p99"] = round(ours["p99"] / control["p99"], 3)
            found["gap_ratio_p999"] = round(ours["p99.9"] / control["p99.9"], 3)
            found["worst_ms"], found["control_worst_ms"] = ours["worst"], control["worst"]
    if {"short", "constant"} <= results.keys():
        found["chats_finished"] = results["short"]["chats_finished"]
        full, never = (results[name]["tokens_per_s_of_all"] for name in ("short", "constant"))
        found["tok_s_ratio"] = round(full / never, 3)
    return found


def bound(load: Load) -> dict[str, float]:
    """`tok_s_ratio_of_fewest_passes`: what `tok_s_ratio` would be with copies that cost nothing and passes of one
    length; only where there is a pool that fills."""
    if not load.n_cells_short:
        return {}
    n_passes = fewest_passes(N_CHATS, load.n_prompt, load.n_tokens, load.n_cells_short)
    return {"tok_s_ratio_of_fewest_passes": round(load.n_tokens / n_passes, 3)}


def document(words: list[str], load: Load, results: dict[str, Any]) -> dict[str, Any]:
    """Everything but the single gaps, with what it ran on and the command."""
    return {
        "command": shlex.join(["scripts/bench", "stall", *words]),
        **ran_on(),
        "model": Path(load.model).name,
        **verdict(results),
        **bound(load),
        "runs": {name: {k: v for k, v in result.items() if k != "gaps_s"} for name, result in results.items()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
