"""SIGINT and SIGTERM, received by a thread that waits for nothing else, so that none is lost.

A handler in Python runs when the main thread next runs Python; a signal that lands just before the main thread blocks
would wait as long as that thread does. So both signals are blocked in every thread, and one thread takes them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

_ENDING = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Made on the main thread before any other thread is: threads inherit what is blocked."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._has_come = False

    def watch(self, interrupt: Callable[[], None]) -> None:
        """Call `interrupt` (on a thread of its own) at the first signal, or at once if that came already; a second one
        ends the process with code 1. A later call replaces what is called."""
        with self._lock:
            is_first, self._interrupt = self._interrupt is None, interrupt
            has_come = self._has_come
        if is_first:
            threading.Thread(target=self._wait, name="signals", daemon=True).start()
        elif has_come:
            interrupt()

    def _wait(self) -> None:
        signal.sigwait(_ENDING)
        with self._lock:
            self._has_come = True
            interrupt = self._interrupt
        assert interrupt is not None
        interrupt()
        signal.sigwait(_ENDING)
        os.write(2, b"Received second interrupt, terminating immediately.\n")
        os._exit(1)
