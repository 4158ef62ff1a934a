"""One chat on each CPU variant of an installed wheel that this machine can run: smoke_variants.py MODEL, run by the
environment's Python. The others are hidden meanwhile: use an environment of its own. Exits with 1 if a chat fails.

Variants that this machine cannot run are named, and not tried.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HIDDEN = ".hidden"


def libraries() -> Path:
    """The folder next to the compiled module, which is found and not imported."""
    module = importlib.util.find_spec("_pyggml")
    if module is None or module.origin is None:
        raise SystemExit(f"{sys.executable} has no pyggml: install the wheel there first")
    return Path(module.origin).with_name("_pyggml.libs")


def runs_here(variant: Path) -> bool:
    """What ggml asks a variant before it takes it."""
    score = ctypes.CDLL(str(variant)).ggml_backend_score
    score.restype = ctypes.c_int
    return score() > 0


@contextmanager
def alone(variant: Path, variants: list[Path]) -> Iterator[None]:
    hidden = [other for other in variants if other != variant]
    for other in hidden:
        other.rename(f"{other}{HIDDEN}")
    try:
        yield
    finally:
        for other in hidden:
            Path(f"{other}{HIDDEN}").rename(other)


def answers(variant: Path, model: str) -> bool:
    smoke_test = Path(__file__).with_name("smoke_test.py")
    program = Path(sys.executable).with_name("pyggml-server")
    wanted = ["--log", variant.name, "--", "-lv", "4"]
    command = [sys.executable, smoke_test, program, model, variant.stem, *wanted]
    return subprocess.run(command, check=False).returncode == 0


def main(model: str) -> int:
    variants = sorted(libraries().glob("libggml-cpu*.so"))
    runnable = [variant for variant in variants if runs_here(variant)]
    failed = []
    for variant in runnable:
        with alone(variant, variants):
            if not answers(variant, model):
                failed.append(variant.stem)
    print("this machine cannot run:", *(variant.stem for variant in variants if variant not in runnable))
    print("failed:", *failed or ["none"])
    return 1 if failed or not runnable else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
