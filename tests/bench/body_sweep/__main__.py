"""How many wrong bodies each status answers, of ours and of llama-server: `scripts/bench body_sweep`.

The bodies are those of tests/e2e/test_body_sweep.py: every field, at any depth, with a value of another type. Each
endpoint gets servers of its own. Status 0: the server closed the connection, or was gone.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.command_line import server_parser
from tests.bench.machine import default_model, ran_on
from tests.bench.stall.servers import running
from tests.e2e.body_sweep import EMBEDDING, GENERATING, RERANKING, counts, sweep, table

SMALL = ("-c", "256", "-n", "4", "-np", "2", "-t", "1", "-fit", "off", "--no-warmup", "--props")
BODIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {path: (body, ()) for path, body in GENERATING.items()}
BODIES |= {path: (body, ("--embeddings",)) for path, body in EMBEDDING.items()}
BODIES |= {path: (body, ("--reranking",)) for path, body in RERANKING.items()}


def main(words: list[str]) -> int:
    options = parse(words)
    programs = {"pyggml_server": options.ours} | ({"llama_server": options.stock} if options.stock else {})
    told: dict[str, Any] = {"command": shlex.join(["scripts/bench", "body_sweep", *words]), **ran_on()}
    model = options.model or default_model()
    told["statuses"] = {name: statuses(program, model, options) for name, program in programs.items()}
    told["all"] = {name: summed(found) for name, found in told["statuses"].items()}
    for name, found in told["statuses"].items():
        print(f"{name}\n{table(found)}\n{table({'all': told['all'][name]})}")
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = server_parser("body_sweep", __doc__)
    parser.add_argument("--paths", default=",".join(BODIES), help="of these endpoints only (default: all)")
    return parser.parse_args(words)


def statuses(program: list[str], model: str, options: argparse.Namespace) -> dict[str, dict[str, int]]:
    """By path; one server after the other."""
    found: dict[str, dict[str, int]] = {}
    for path in options.paths.split(","):
        body, flags = BODIES[path]
        with tempfile.TemporaryDirectory() as folder:
            place = ("--host", "127.0.0.1", "--port", "0", "--slot-save-path", str(Path(folder)))
            argv = [*program, "-m", model, *SMALL, *place, *flags, *options.server_flags]
            with running(argv, {}) as server:
                found |= counts(sweep(server.url, {path: body}))
        print(table({path: found[path]}), file=sys.stderr, flush=True)
    return found


def summed(found: dict[str, dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for by_status in found.values():
        total.update(by_status)
    return dict(sorted(total.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
