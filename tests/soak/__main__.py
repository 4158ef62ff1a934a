"""Random traffic for as long as you like: `scripts/soak`. The books are checked after every pass of the engine.

Each round starts an engine with a pool and a budget that are too small for its load: chats, prompts that do not fit,
cancels, context shifts, refused and pageable allocations. A round that fails prints its seed and what did not hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

from tests.soak.round import run_round


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="the GGUF file (scripts/soak gives the default model)"
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long rounds are begun (default: 600)")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="end after so many rounds (default: no limit)")
    parser.add_argument("--seed", help="repeat the run that printed this (default: a new one)")
    parser.add_argument(
        "--everything",
        action="store_true",
        help="each round also has priorities, a short line, parks by hand, and files of\nstates and prompts",
    )
    options = parser.parse_args(words)
    seed = options.seed or str(random.SystemRandom().randrange(2**32))
    print(f"soak: seed {seed}", flush=True)
    end_s = time.monotonic() + options.seconds
    n_rounds = 0
    while n_rounds < options.rounds and time.monotonic() < end_s:
        try:
            said = run_round(options.model, f"{seed} {n_rounds}", has_everything=options.everything)
        except Exception:
            traceback.print_exc()
            print(f"soak: round {n_rounds} failed; repeat with --seed {seed} --rounds {n_rounds + 1}", flush=True)
            return 1
        print(f"soak: round {n_rounds}: {said}", flush=True)
        n_rounds += 1
    print(f"soak: {n_rounds} rounds, all requests ended once, the books agreed after every pass", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
