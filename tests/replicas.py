"""Replicas behind Ray Serve, started, scaled and ended from a test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from tests.server_process import ServerProcess

ROOT = Path(__file__).parents[1]
RAY = ("ray[serve]==2.60.0", "cffi>=1.16", "httpx2>=2.12", "prometheus-client>=0.20", "numpy>=1.24")
PATIENCE_S = 240.0
LINE_S = 0.1


class Replicas(ServerProcess):
    """A cluster of this machine with its proxy at `url`."""

    def __init__(self, python: Path, port: int, folder: Path, arguments: dict[str, object]) -> None:
        self._pipe = folder / "replicas.pipe"
        os.mkfifo(self._pipe)
        told = {
            "PYTHONPATH": f"{ROOT / 'server'}:{ROOT}",
            "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "pyggml_server.ray.proxy.middlewares",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        words = [f"{name}={value}" for name, value in arguments.items()]
        super().__init__(
            [python, "-m", "tests.ray_cluster", str(port), self._pipe, *words], {**os.environ, **told}, folder
        )

    def scale(self, number: int) -> None:
        """Have so many from now on. Returns at once; `listed` shows when it is so."""
        self._tell(str(number))

    def finish(self) -> int:
        """Take all down in good order; the exit code."""
        self._tell("end")
        return self.wait(PATIENCE_S)

    def _tell(self, line: str) -> None:
        self._pipe.write_text(line + "\n", encoding="utf-8")

    def listed(self) -> list[dict[str, Any]]:
        """What /replicas.json says; nothing while nobody answers."""
        with contextlib.suppress(requests.RequestException):
            response = requests.get(f"{self.url}/replicas.json", timeout=PATIENCE_S)
            if response.status_code == 200:
                replicas: list[dict[str, Any]] = response.json()["replicas"]
                return replicas
        return []


@contextlib.contextmanager
def running_replicas(python: Path, port: int, folder: Path, **arguments: object) -> Iterator[Replicas]:
    """Replicas that are taken down after their use."""
    replicas = Replicas(python, port, folder, arguments)
    try:
        replicas.wait_until_listening(PATIENCE_S)
        yield replicas
        assert replicas.finish() == 0
    finally:
        replicas.kill()
