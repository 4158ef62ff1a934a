"""Runs llama-server's own tests, from inside the tree, against one server program, and reads what came of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_support.layout import of_this_clone
from tests.conftest import MODEL_NAME
from tests.upstream.local_hub import serving
from tests.upstream.local_models import write_all
from tests.upstream.plugin import REPORT_VARIABLE

SUITE = of_this_clone().tree / "tools" / "server" / "tests"
RESULTS = of_this_clone().build / "upstream-suite"
# One thread, and nothing that only takes time: two cores run the tests, the server and its loading.
SERVER_ENVIRONMENT = {"LLAMA_ARG_THREADS": "1", "LLAMA_ARG_WARMUP": "0", "LLAMA_ARG_FIT": "off"}


@dataclass(frozen=True)
class Outcome:
    """What became of one test: `passed`, `failed` or `skipped`, and why."""

    outcome: str
    why: str = ""


Outcomes = dict[str, Outcome]


def run(name: str, program: Path, arguments: Sequence[str]) -> Outcomes:
    """Run the tests that the arguments choose (all but the slow ones without any). The log and the report are kept
    under build/ by the server's `name`. Blocks for as long as the tests take. Raises RuntimeError if pytest could not
    run them."""
    write_all()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (SUITE / "tmp").mkdir(exist_ok=True)  # where its tests write
    report, log = RESULTS / f"{name}.jsonl", RESULTS / f"{name}.log"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.upstream.plugin", "-p", "no:cacheprovider"]
    command += ["-q", "-m", "not slow", "--color=no", *(arguments or ["unit"])]
    with log.open("w", encoding="utf-8") as file, serving(_chat_model()) as hub:
        environment = {**_environment(program, report), **hub}
        done = subprocess.run(command, cwd=SUITE, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: see {log}")
    return read_report(report)


def read_report(path: Path) -> Outcomes:
    """The outcomes by test. A phase that failed decides over one that passed."""
    found: Outcomes = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["outcome"] == "failed" or entry["test"] not in found:
            found[entry["test"]] = Outcome(entry["outcome"], entry["why"])
    return found


def _environment(program: Path, report: Path) -> dict[str, str]:
    root = of_this_clone().root
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {
        **os.environ,
        **SERVER_ENVIRONMENT,
        "LLAMA_SERVER_BIN_PATH": str(program),
        "PORT": str(port),
        "PYGGML_TEST_MODEL": str(_chat_model()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(root),
        REPORT_VARIABLE: str(report),
    }


def _chat_model() -> Path:
    return Path(os.environ.get("PYGGML_TEST_MODEL") or of_this_clone().root / ".models" / MODEL_NAME)
