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

    def watch(self, interrupt: Callable[[], None]) -> None:
        """Call `interrupt` (on a thread of its own) at the first signal; a second one ends the process with code 1."""
        threading.Thread(target=_wait_for_signals, args=(interrupt,), name="signals", daemon=True).start()


def _wait_for_signals(interrupt: Callable[[], None]) -> None:
    signal.sigwait(_ENDING)
    interrupt()
    signal.sigwait(_ENDING)
    os.write(2, b"Received second interrupt, terminating immediately.\n")
    os._exit(1)
