"""Tokens per second of both servers at several widths: `scripts/bench throughput`.

llama-server and ours run in one sitting and take turns, each round in the other order. For each number of chats there
are runs with the prompt cache on and off, greedy and with default sampling, with and without sampling on the device
(-bs); and the same decode without a server, which is the limit. Then prompts: sixteen at once, and a long one
during eight chats. Compare inside one run only.

--stock names the llama-server. To compare with an unpatched one, build it from the commit `base` of the tree.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from tests.bench.bars_svg import bars_svg
from tests.bench.command_line import server_parser
from tests.bench.machine import default_model, ran_on
from tests.bench.throughput.prompts import measure
from tests.bench.throughput.rounds import OURS, STOCK, Plan, Variant, generate

VARIANTS = {
    "cache": Variant(prompt_cache=True, backend_sampling=False),
    "plain": Variant(prompt_cache=False, backend_sampling=False),
    "bs": Variant(prompt_cache=False, backend_sampling=True),
}


def main(words: list[str]) -> int:
    options = parse(words)
    programs = {OURS: tuple(options.ours)} | ({STOCK: tuple(options.stock)} if options.stock else {})
    plan = Plan(
        options.model or default_model(),
        programs,
        tuple(int(width) for width in options.chats.split(",")),
        options.prompt,
        options.tokens,
        options.rounds,
        tuple(options.server_flags),
    )
    told: dict[str, Any] = {"command": shlex.join(["scripts/bench", "throughput", *words]), **ran_on()}
    told["model"] = Path(plan.model).name
    told["rows"] = generate(plan, [VARIANTS[name] for name in options.variants.split(",")])
    if options.long_prompt:
        told["prompts"] = measure(plan, options.long_prompt)
    print(table(told["rows"]))
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    if options.plot:
        Path(options.plot).write_text(picture(told["rows"]))
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("throughput", __doc__)
    parser.add_argument("--chats", default="1,4,16,64", help="numbers of chats (default: 1,4,16,64)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each chat's prompt (default: 32)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens that each chat generates (default: 128)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each server (default: 3)")
    parser.add_argument("--variants", default="cache,plain,bs", help="of cache,plain,bs; default: all")
    parser.add_argument("--long-prompt", type=int, default=0, help="tokens of each of sixteen prompts; 0: not measured")
    parser.add_argument("--plot", help="draw them here, as SVG")
    return parser.parse_args(words)


def table(rows: list[dict[str, Any]]) -> str:
    """A line for each row."""
    line = "{:>5} {:<6} {:<8} {:<4} {:>9} {:>9} {:>7} {:>9} {:>7} {:>11} {:>11} {:>9} {:>9}"
    head = ("chats", "cache", "sampling", "bs", "ours", "stock", "ratio", "alone", "ratio")
    lines = [line.format(*head, "ours 1st ms", "stock 1st", "ours p99", "stock p99")]
    for row in rows:
        speed = row["tokens_per_s"]
        numbers = [speed[OURS], speed.get(STOCK, "-"), row.get("ratio_to_llama_server", "-")]
        numbers += [row["decode_alone_tokens_per_s"], row["ratio_to_decode_alone"]]
        for of, percentile in (("first_token_ms", "p99"), ("gaps_ms", "p99")):
            numbers += [row[of].get(program, {}).get(percentile, "-") for program in (OURS, STOCK)]
        what = (row["chats"], *("on" if row[name] else "off" for name in ("prompt_cache",)), row["sampling"])
        lines.append(line.format(*what, "on" if row["backend_sampling"] else "off", *numbers))
    return "\n".join(lines)


def picture(rows: list[dict[str, Any]]) -> str:
    """Bars of the plain rows: both servers, and the decode alone."""
    groups = {}
    for row in rows:
        if not row["prompt_cache"] and not row["backend_sampling"]:
            bars = [(program, float(speed)) for program, speed in row["tokens_per_s"].items()]
            groups[f"{row['chats']} chats, {row['sampling']}"] = [
                *bars,
                ("decode alone", row["decode_alone_tokens_per_s"]),
            ]
    return bars_svg("Throughput", "tokens per second of all chats", groups) if groups else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
