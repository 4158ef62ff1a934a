"""A model's server under a router: what it tells the router on stdout, and the word to end that it gets on stdin.

Lines, as llama-server's router has them. `tell` from any thread; `watch` starts a thread of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import BinaryIO

from pyggml_server.download.ports import DownloadError

log = logging.getLogger(__name__)

PORT_VARIABLE = "LLAMA_SERVER_ROUTER_PORT"  # the router sets it for what it starts
MODE_VARIABLE = "LLAMA_SERVER_CHILD_MODE"
ENDPOINT_VARIABLE = "PYGGML_ROUTER_ENDPOINT"  # where the hub is for the models' servers
EXIT_LINE = b"cmd_router_to_child:exit"
STATE_LINE = "cmd_child_to_router:state:"
LEAST_INTERVAL_S = 0.1  # between two lines of progress

LOADING, READY, SLEEPING, DOWNLOADING = "loading", "ready", "sleeping", "downloading"


class RouterLink:
    """The line to the router."""

    def __init__(self, is_download: bool, stdin: BinaryIO, write: Callable[[bytes], object]) -> None:
        """is_download: it wants the model's files, and no server."""
        self.is_download = is_download
        self._stdin = stdin
        self._write = write
        self._lock = threading.Lock()
        self._next_progress_s = 0.0

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> RouterLink | None:
        """None where no router started this process. Programs that this one starts shall not think that one did, so
        the variables go. Main thread, before there are others."""
        if environ.pop(PORT_VARIABLE, None) is None:
            return None
        if endpoint := environ.pop(ENDPOINT_VARIABLE, ""):
            environ["MODEL_ENDPOINT"] = endpoint
        is_download = environ.pop(MODE_VARIABLE, "") == "download"
        return cls(is_download, sys.stdin.buffer, lambda line: os.write(sys.stdout.fileno(), line))

    def tell(self, state: str, payload: Mapping[str, object] | None = None) -> None:
        """The new state of the model."""
        line = STATE_LINE + json.dumps({"state": state, "payload": payload or {}})
        # log lines come on the same pipe: what they have left open is closed first, and this goes in one piece
        with self._lock:
            self._write(f"\n{line}\n".encode())

    def tell_progress(self, state: str, payload: Mapping[str, object], *, is_last: bool) -> None:
        """The same, but not more often than a reader can use."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_progress_s and not is_last:
                return
            self._next_progress_s = now_s + LEAST_INTERVAL_S
        self.tell(state, payload)

    def tell_ready(self, models: bytes) -> None:
        """The model is loaded, for the first time or again; `models` is what /v1/models says."""
        self.tell(READY, json.loads(models)["data"][0])

    def tell_asleep(self) -> None:
        """The model was freed because nothing was to be done."""
        self.tell(SLEEPING)

    def tell_load_progress(self, part: float) -> None:
        """So much of the model is loaded, from 0 to 1."""
        payload = {"stages": ["text_model"], "current": "text_model", "value": part}
        self.tell_progress(LOADING, payload, is_last=part >= 1)

    def tell_download_progress(self, url: str, n_done: int, n_bytes: int) -> None:
        """So many bytes of a file have come, of so many (0: unknown)."""
        payload = {"url": url, "downloaded": n_done, "total": n_bytes}
        self.tell_progress(DOWNLOADING, payload, is_last=n_done == n_bytes)

    def watch(self, end: Callable[[], None]) -> threading.Thread:
        """Call `end` when the router says so; without a router this process ends at once, with code 1."""
        thread = threading.Thread(target=self._wait_for_end, args=(end,), name="router link", daemon=True)
        thread.start()
        return thread

    def download(self, fetch: Callable[[], None] | None) -> int:
        """Get the model's files and say how that went; the exit code, once the router has said to end."""
        watching = self.watch(lambda: None)
        result = "download_finished"
        try:
            if fetch is not None:
                fetch()
        except DownloadError as error:
            log.error("%s", error)
            result = "download_failed"
        self.tell(DOWNLOADING, {"result": result})
        watching.join()
        return 0

    def _wait_for_end(self, end: Callable[[], None]) -> None:
        for line in self._stdin:
            if EXIT_LINE in line:
                end()
                return
        log.error("the router is gone: exiting")
        os._exit(1)
