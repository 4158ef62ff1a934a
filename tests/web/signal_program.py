"""A server process with a fake engine, for tests that send signals. `hang`: its engine never ends."""

from __future__ import annotations

import sys
import threading

from pyggml_server.app import Server, handle_signals

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
    server = Server(FakeSettings(), ProgramEngine)
    handle_signals(server)
    sys.exit(server.run())
