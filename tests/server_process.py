"""A server program as a process of its own: started, waited for through its log, ended. Standard library only: it also
runs where nothing can be installed.

The log is read on a thread, so waiting is for a line or for the end and never a sleep.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LISTENING = re.compile(r"listening on (http://\S+)")
N_SHOWN_LINES = 60


class ServerProcess:
    """One run of a server; `url` once it listens, `lines` what it has written so far."""

    def __init__(self, argv: Sequence[str | Path], environment: Mapping[str, str], folder: Path | None = None) -> None:
        """`environment` is all of it; `folder` is where it runs, or else the present one."""
        self.url = ""
        self._program = Path(argv[0])
        self.lines: list[str] = []
        self._is_settled = threading.Event()
        self._process = subprocess.Popen(
            [str(word) for word in argv],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def program(self) -> Path:
        return self._program

    @property
    def process_id(self) -> int:
        return self._process.pid

    def wait_until_listening(self, patience_s: float) -> None:
        """Raises RuntimeError with the end of the log if it does not come to listen; it is killed then."""
        self._is_settled.wait(patience_s)
        if not self.url:
            self.kill()
            raise RuntimeError(f"{self._process.args!r} did not come to listen; the end of its log:\n{self.log()}")

    def wait(self, patience_s: float | None = None) -> int:
        """Wait for the end, after which `lines` is the whole log; the exit code. Raises subprocess.TimeoutExpired."""
        code = self._process.wait(patience_s)
        self._reader.join(patience_s)
        return code

    def terminate(self) -> None:
        """Ask for the end, if it has not come yet."""
        self._process.terminate()

    def kill(self) -> None:
        """End it whatever state it is in."""
        self._process.kill()
        self.wait()

    def log(self) -> str:
        """The last lines that it wrote."""
        return "".join(self.lines[-N_SHOWN_LINES:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                if not self.url and (listening := LISTENING.search(line)):
                    self.url = listening[1]
                    self._is_settled.set()
        self._is_settled.set()
