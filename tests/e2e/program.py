"""The two servers as the end-to-end tests run them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import requests

from tests import server_process

REPOSITORY = Path(__file__).parents[2]
ASKED_EVERY_S = 0.1
PATIENCE_S = 120.0  # only a broken program takes so long; no test measures time
# apart from these, a program gets no setting of llama.cpp or of ours from the environment
FOREIGN_PREFIXES = ("LLAMA_", "HF_", "GGML_")


class ServerProcess(server_process.ServerProcess):
    """One run of a server, and small ways to talk to it."""

    def __init__(self, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
        super().__init__(argv, {**own, **(environment or {})}, REPOSITORY)

    def wait_until_ready(self) -> ServerProcess:
        """Wait until it says that it listens and /health agrees."""
        try:
            self.wait_until_listening(PATIENCE_S)
        except RuntimeError as error:
            pytest.fail(str(error))
        assert self.get("/health").json() == {"status": "ok"}
        return self

    def answer_once_it_listens(self, path: str, *, awaited: int | None = None, **options: object) -> requests.Response:
        """For one that does not say when it listens: ask until it answers, with another status than one to be awaited.
        `url` is set by then."""
        while True:
            with contextlib.suppress(requests.ConnectionError):
                response = self.get(path, **options)
                if response.status_code != awaited:
                    return response
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it ended with {self.wait(ASKED_EVERY_S)}:\n{self.log()}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """Ask for the end and insist on exit code 0."""
        self.terminate()
        try:
            code = self.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert code == 0, self.log()

    def whole_log(self) -> str:
        """Everything that it wrote so far."""
        return "".join(self.lines)

    def get(self, path: str, **options: object) -> requests.Response:
        """Options go to `requests`."""
        return requests.get(self.url + path, timeout=PATIENCE_S, **options)  # type: ignore[arg-type]

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


def free_port() -> int:
    """For a program that does not say which one it took."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def our_program() -> Path:
    """pyggml-server as it is installed with this Python."""
    return _existing(Path(sys.executable).with_name("pyggml-server"), "scripts/setup dev")


def stock_program() -> Path:
    """llama-server of the same tree: the reference."""
    path = Path(os.environ.get("PYGGML_TEST_LLAMA_SERVER") or REPOSITORY / "build/cmake/bin/llama-server")
    return _existing(path, "PYGGML_WITH_LLAMA_SERVER=1 scripts/setup dev, or set PYGGML_TEST_LLAMA_SERVER")


def _existing(program: Path, remedy: str) -> Path:
    if not program.is_file():
        pytest.fail(f"{program} is missing: run {remedy}")
    return program
