"""The servers of this measurement. Standard library only, as all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.server_process import ServerProcess

READY_TIMEOUT_S = 600.0


@contextmanager
def running(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[ServerProcess]:
    """A server that listens, ended afterwards. Raises RuntimeError if it does not come to listen."""
    server = ServerProcess(argv, {**os.environ, **environment})
    server.wait_until_listening(READY_TIMEOUT_S)
    try:
        yield server
    finally:
        server.terminate()
        server.wait()
