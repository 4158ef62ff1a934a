"""What the command lines of several benchmarks share: `--json`, the model, the two servers and their flags."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Of `scripts/bench NAME`: knows `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {name}", description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser


def model_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """As `bench_parser`, with `--model`."""
    parser = bench_parser(name, description)
    parser.add_argument("--model", help="the GGUF file (default: the default model, which is fetched)")
    return parser


def server_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """As `model_parser`, with the commands of both servers, and flags for both behind `--`."""
    parser = model_parser(name, description)
    parser.add_argument("--ours", type=shlex.split, default=[sys.executable, "-m", "pyggml_server"], help="our server")
    parser.add_argument(
        "--stock",
        type=shlex.split,
        default=[str(ROOT / "build/cmake/bin/llama-server")],
        help='the llama-server to compare with, "" for none (default: that of the same tree)',
    )
    parser.add_argument("server_flags", nargs="*", metavar="-- FLAGS", help="more flags for every server")
    return parser
