"""Log lines that say how far a download is. On a terminal llama.cpp draws a bar instead."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

log = logging.getLogger(__name__)

MIB = 1 << 20
N_STEPS = 10
LEAST_STEP_BYTES = 64 * MIB  # a line for less would be read by nobody


class Progress:
    """One file on its way. The thread that relays it; returns at once."""

    def __init__(
        self,
        name: str,
        host: str,
        n_bytes: int,
        n_bytes_before: int = 0,
        observe: Callable[[int], None] | None = None,
    ) -> None:
        """`n_bytes` is its size, 0 where the server does not tell; `n_bytes_before` what was there already. `observe`
        gets how much has come."""
        self._name = name
        self._n_bytes = n_bytes
        self._n_done = n_bytes_before
        self._step_bytes = max(n_bytes // N_STEPS, LEAST_STEP_BYTES)
        self._observe = observe
        self._next_line_at = n_bytes_before + self._step_bytes
        size = f", {n_bytes / MIB:.1f} MiB" if n_bytes else ""
        rest = f", continued at {n_bytes_before / MIB:.1f} MiB" if n_bytes_before else ""
        log.info("downloading %s from %s%s%s", name, host, size, rest)

    def advance(self, n_bytes: int) -> None:
        """So many more have been passed on."""
        self._n_done += n_bytes
        if self._observe is not None:
            self._observe(self._n_done)
        if self._n_done < self._next_line_at or sys.stdout.isatty():
            return
        self._next_line_at += self._step_bytes
        whole = f" of {self._n_bytes / MIB:.0f}" if self._n_bytes else ""
        log.info("downloading %s: %.0f%s MiB", self._name, self._n_done / MIB, whole)
