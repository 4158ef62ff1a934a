"""What states cost llama-server, unpatched and patched: `scripts/bench slot_states`.

Chats that have decoded in turns end and leave their cells scattered. Then a slot is saved to a file and restored, a new
request comes while the idle slots still hold those chats (llama-server sends them to the prompt cache first), and one
chat comes back from there. Both programs take turns in one sitting.

To get an unpatched one, build it from the commit `base` of the tree.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.bench.machine import default_model, ran_on
from tests.bench.slot_states.phases import MEASURED, Load, measure

ROOT = Path(__file__).parents[3]


def main(words: list[str]) -> int:
    options = parse(words)
    programs = {"unpatched": tuple(options.unpatched)} if options.unpatched else {}
    programs["patched"] = tuple(options.patched)
    model = options.model or default_model()
    load = Load(model, options.chats, options.prompt, options.tokens, tuple(options.server_flags))
    rounds = measure(programs, load, options.rounds)
    told: dict[str, Any] = {"command": shlex.join(["scripts/bench", "slot_states", *words]), **ran_on()}
    told["model"] = Path(model).name
    told["rounds"] = rounds
    told["median_ms"] = {
        program: {name: round(statistics.median(one[name] for one in of), 1) for name in MEASURED}
        for program, of in rounds.items()
    }
    print(table(told["median_ms"]))
    if options.json:
        Path(options.json).write_text(json.dumps(told, indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench slot_states", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", help="the GGUF file (default: the default model, which is fetched)")
    parser.add_argument("--chats", type=int, default=4, help="that decode in turns (default: 4)")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of each chat's prompt (default: 200)")
    parser.add_argument("--tokens", type=int, default=1000, help="tokens that each generates (default: 1000)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each program (default: 2)")
    parser.add_argument(
        "--unpatched", type=shlex.split, default=[], help="a llama-server to compare with; none by default"
    )
    parser.add_argument(
        "--patched",
        type=shlex.split,
        default=[str(ROOT / "build/cmake/bin/llama-server")],
        help="the llama-server with the series (default: that of the build)",
    )
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("server_flags", nargs="*", metavar="-- FLAGS", help="more flags for both")
    return parser.parse_args(words)


def table(medians: dict[str, dict[str, float]]) -> str:
    """A line for each measured time, in milliseconds."""
    lines = [f"{'ms':<32}" + "".join(f"{program:>12}" for program in medians)]
    for name, what in MEASURED.items():
        lines.append(f"{what:<32}" + "".join(f"{of[name]:>12}" for of in medians.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
