"""A server program as a process of its own: started, waited for through its log, ended; its log kept for failures.

The log is read on a thread, so waiting is for a line or for the end and never a sleep.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import requests

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120.0  # only a broken program takes so long; no test measures time
LISTENING = re.compile(r"listening on (http://\S+)")
N_SHOWN_LINES = 60
# beside these, a program gets no setting of llama.cpp or of ours from the environment
FOREIGN_PREFIXES = ("LLAMA_", "HF_", "GGML_")


class ServerProcess:
    """One run of a server; `url` once it is ready."""

    def __init__(self, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
        self.url = ""
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        self._process = subprocess.Popen(
            [str(word) for word in argv],
            env={**own, **(environment or {})},
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> ServerProcess:
        """Wait until it says that it listens and /health agrees."""
        with self._changed:
            self._changed.wait_for(lambda: self.url or self._has_ended, PATIENCE_S)
        if not self.url:
            log = self.log()
            self.kill()
            pytest.fail(f"{self._process.args!r} did not become ready; its log:\n{log}")
        assert self.get("/health").json() == {"status": "ok"}
        return self

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def end(self) -> None:
        """Ask for the end and insist on exit code 0."""
        if self._process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            code = self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert code == 0, self.log()

    def kill(self) -> None:
        """End it whatever state it is in."""
        self._process.kill()
        self.wait()

    def log(self) -> str:
        """The last lines that it wrote."""
        with self._changed:
            return "".join(self._lines[-N_SHOWN_LINES:])

    def whole_log(self) -> str:
        """Everything that it wrote so far."""
        with self._changed:
            return "".join(self._lines)

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, timeout=PATIENCE_S)

    def get_stream(self, path: str) -> requests.Response:
        """The response with its headers; what follows is read from it."""
        return requests.get(self.url + path, timeout=PATIENCE_S, stream=True)

    def post(self, path: str, body: object, **options: object) -> requests.Response:
        """POST JSON. Options go to `requests`."""
        return requests.post(self.url + path, json=body, timeout=PATIENCE_S, **options)  # type: ignore[arg-type]

    def slots(self) -> list[dict[str, object]]:
        slots: list[dict[str, object]] = self.get("/slots").json()
        return slots

    def metric(self, name: str) -> float:
        """The value of `llamacpp:name`."""
        found = re.search(rf"^llamacpp:{name} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        assert found, f"/metrics has no llamacpp:{name}"
        return float(found[1])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._lines.append(line)
                    listening = LISTENING.search(line)
                    self.url = self.url or (listening[1] if listening else "")
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


def our_program() -> Path:
    """pyggml-server as it is installed beside this Python."""
    return _existing(Path(sys.executable).with_name("pyggml-server"), "scripts/setup dev")


def stock_program() -> Path:
    """llama-server of the same tree: the reference."""
    path = Path(os.environ.get("PYGGML_TEST_LLAMA_SERVER") or REPOSITORY / "build/cmake/bin/llama-server")
    return _existing(path, "PYGGML_WITH_LLAMA_SERVER=1 scripts/setup dev, or set PYGGML_TEST_LLAMA_SERVER")


def _existing(program: Path, remedy: str) -> Path:
    if not program.is_file():
        pytest.fail(f"{program} is missing: run {remedy}")
    return program
