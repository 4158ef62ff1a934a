"""Two downloads into one folder come one after the other."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path

from pyggml_server.download import folder_lock
from pyggml_server.download.folder_lock import alone_in

PATIENCE_S = 60.0


class Told(logging.Handler):
    """Log lines as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(record.getMessage())


def test_the_second_waits_says_so_and_goes_on(tmp_path: Path) -> None:
    told, got_it = Told(), threading.Event()
    folder_lock.log.addHandler(told)
    folder_lock.log.setLevel(logging.INFO)

    def download() -> None:
        with alone_in([tmp_path]):
            got_it.set()

    second = threading.Thread(target=download, daemon=True)
    try:
        with alone_in([tmp_path]):
            second.start()
            assert told.lines.get(timeout=PATIENCE_S) == f"waiting: another process downloads into {tmp_path}"
            assert not got_it.is_set()
        assert got_it.wait(PATIENCE_S)
        second.join(PATIENCE_S)
    finally:
        folder_lock.log.removeHandler(told)
        folder_lock.log.setLevel(logging.NOTSET)


def test_folders_are_made_and_those_that_cannot_be_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with alone_in([tmp_path / "new", tmp_path / "file" / "in a file"]):
        assert (tmp_path / "new" / folder_lock.NAME).is_file()
