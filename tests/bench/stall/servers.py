"""A server program of this measurement: started, waited for through its log, ended. Standard library only: it also runs
where nothing can be installed."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

READY_TIMEOUT_S = 600.0
_LISTENING = re.compile(r"listening on http://([^:\s]+):(\d+)")


class Server:
    """A running server; `host` and `port` once it listens, `lines` what it has logged."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.host, self.port = "", 0
        self._is_settled = threading.Event()
        self._process = subprocess.Popen(
            argv,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Raises RuntimeError with the end of the log if it does not come to listen."""
        self._is_settled.wait(READY_TIMEOUT_S)
        if not self.port:
            raise RuntimeError("the server did not start; the end of its log:\n" + "".join(self.lines[-30:]))

    def end(self) -> None:
        """Ask for its end and wait for it; afterwards `lines` is the whole log."""
        self._process.terminate()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                if not self.port and (listening := _LISTENING.search(line)):
                    self.host, self.port = listening[1], int(listening[2])
                    self._is_settled.set()
        self._is_settled.set()


@contextmanager
def running(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[Server]:
    """A server that listens, ended afterwards."""
    server = Server(argv, environment)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end()
