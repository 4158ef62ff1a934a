"""The end of a server that lets running requests end first (`--drain-seconds`). Event loop thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyggml_server.web.errors import refused

DRAINING_MESSAGE = "The server is about to end and takes no new requests"
RETRY_AFTER_S = 1  # by then a client finds another server, or this one's successor


class Drain:
    """Counts what runs. Once it has begun, it takes nothing new, and tells when the last has ended."""

    def __init__(self) -> None:
        self._n_running = 0
        self._on_empty: Callable[[], None] | None = None

    def begin(self, on_empty: Callable[[], None]) -> None:
        """Take no new requests. `on_empty` is called once nothing runs: at once, if nothing does now."""
        self._on_empty = on_empty
        self._tell_if_empty()

    @property
    def is_under_way(self) -> bool:
        return self._on_empty is not None

    @contextmanager
    def new_request(self) -> Iterator[None]:
        """Something runs inside. Raises RequestRefusedError (503) once the drain has begun."""
        if self.is_under_way:
            raise refused(DRAINING_MESSAGE, "unavailable_error", RETRY_AFTER_S)
        with self.hold():
            yield

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The same for a part of something that was let in."""
        self._n_running += 1
        try:
            yield
        finally:
            self._n_running -= 1
            self._tell_if_empty()

    def _tell_if_empty(self) -> None:
        if self._on_empty is not None and self._n_running == 0:
            self._on_empty()
