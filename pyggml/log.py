"""Native log messages to `logging`: loggers `pyggml.llama` and `pyggml.ggml`.

The native side queues messages (see native/shim/log.h); Python takes them out after each call on the calling thread,
and on one daemon thread of its own for what is logged during long calls and by threads of llama.cpp. No native thread
ever runs Python. From interpreter exit on, errors go to stderr and the rest is dropped.
"""

from __future__ import annotations

import atexit
import logging
import threading

from pyggml.ffi import ffi, lib, on_return

_LLAMA = logging.getLogger("pyggml.llama")
_GGML = logging.getLogger("pyggml.ggml")
_LEVELS = {
    lib.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    lib.GGML_LOG_LEVEL_INFO: logging.INFO,
    lib.GGML_LOG_LEVEL_WARN: logging.WARNING,
    lib.GGML_LOG_LEVEL_ERROR: logging.ERROR,
}
_WAIT_MS = 60_000

# Reentrant: a logging handler may itself call into pyggml.
_drain_lock = threading.RLock()
_start_lock = threading.Lock()
_thread: threading.Thread | None = None


def start() -> None:
    """Routes llama.cpp's messages to `logging`. The first `Model` does it; calling it again re-installs the route."""
    global _thread
    with _start_lock:
        lib.pyggml_log_install()
        on_return(drain)
        if _thread is None:
            _thread = threading.Thread(target=_drain_until_stopped, name="pyggml-log", daemon=True)
            _thread.start()
            atexit.register(_stop)


def drain() -> None:
    """Hands the queued messages to `logging`, unless another thread is doing so. Never waits."""
    if _drain_lock.acquire(blocking=False):
        try:
            _emit_all()
        finally:
            _drain_lock.release()


def flush() -> None:
    """Like `drain`, but waits for another thread that is draining: afterwards all earlier messages are logged."""
    with _drain_lock:
        _emit_all()


def _emit_all() -> None:
    record = ffi.new("struct pyggml_log_record *")
    # Only what is there now: a thread that logs without a pause must not keep this one for ever.
    for _ in range(lib.pyggml_log_n_records()):
        if not lib.pyggml_log_next(record):
            return
        try:
            text = bytes(ffi.string(record.text)).decode("utf-8", "replace")
        finally:
            lib.pyggml_log_record_free(record)
        logger = _LLAMA if record.is_llama else _GGML
        logger.log(_LEVELS.get(record.level, logging.INFO), "%s", text)


def _drain_until_stopped() -> None:
    while lib.pyggml_log_wait(_WAIT_MS):
        flush()


def _stop() -> None:
    lib.pyggml_log_stop()
    flush()
    if _thread is not None:
        _thread.join()
