"""Our log in the layout of llama-server's lines, so that programs that read its log read ours. A leaf."""

from __future__ import annotations

import logging

# logger, and the least level that is shown; uvicorn's own chatter is not llama-server's
LOGGERS = (("pyggml_server", logging.INFO), ("pyggml", logging.WARNING), ("uvicorn", logging.WARNING))
DEBUG_VERBOSITY = 5  # from here on llama.cpp shows what is for debugging (-lv)


class LlamaLineFormatter(logging.Formatter):
    """`srv      function: message`; time and level are put before it by llama.cpp's logger."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it where the record has one."""
        line = f"srv  {(record.funcName or '')[:12]:>12}: {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def send_log_to(handler: logging.Handler, verbosity: int) -> None:
    """Make `handler` the only one that shows this program's log, what is for debugging too at llama.cpp's verbosity
    for it."""
    handler.setFormatter(LlamaLineFormatter())
    for name, level in LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    if verbosity >= DEBUG_VERBOSITY:
        logging.getLogger("pyggml_server").setLevel(logging.DEBUG)
