"""A server process with a fake engine, for tests that send signals. `hang`: its engine never ends."""

from __future__ import annotations

import sys
import threading

from pyggml_server.app import Server
from pyggml_server.signals import Signals

from tests.web.fakes import FakeEngine, FakeSettings


class ProgramEngine(FakeEngine):
    """Loads at once, and tells on stdout how far the process has come."""

    def start(self) -> None:
        self.finish_loading()
        print("ready", flush=True)

    def stop(self) -> None:
        print("stopping", flush=True)
        super().stop()

    def join(self, timeout_s: float | None = None) -> bool:
        if "hang" in sys.argv:
            threading.Event().wait()
        return super().join(timeout_s)


if __name__ == "__main__":
    signals = Signals()
    server = Server(FakeSettings(), ProgramEngine)
    signals.watch(server.interrupt)
    sys.exit(server.run())
