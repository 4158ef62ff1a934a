"""One download at a time in a folder, of all processes: two would append to the same unfinished file."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

NAME = ".pyggml-download.lock"


@contextmanager
def alone_in(folders: Iterable[Path]) -> Iterator[None]:
    """Wait until nobody else downloads into these folders, and keep them. Blocks for as long as the others need.

    A folder that cannot be written to is left alone: nothing is downloaded into it.
    """
    with ExitStack() as kept:
        for folder in sorted(set(folders)):  # in one order, so that no two wait for each other
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = kept.enter_context((folder / NAME).open("a"))
            except OSError:
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.info("waiting: another process downloads into %s", folder)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
