"""Our log lines in llama.cpp's log, so that stderr, --log-file and -lv treat them as llama-server's own."""

from __future__ import annotations

import logging

from pyggml_server.native.border import lib

_LEVELS = ((logging.ERROR, b"E"), (logging.WARNING, b"W"), (logging.INFO, b"I"), (logging.DEBUG, b"D"))


class CommonLogHandler(logging.Handler):
    """Hands records to llama.cpp's logger. Any thread; returns before the line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the formatted record as one line."""
        try:
            level = next((code for limit, code in _LEVELS if record.levelno >= limit), b"D")
            lib.pyggml_log(level, self.format(record).encode("utf-8", "replace"))
        except Exception:
            self.handleError(record)


def flush_log() -> None:
    """Wait until every line so far is written."""
    lib.pyggml_log_flush()
