"""Native messages in `logging`."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyggml import Model, log
from pyggml.ffi import lib
from pyggml.model import start_backend

CONTINUED = 5  # GGML_LOG_LEVEL_CONT: the rest of the message before it


def emit(level: int, text: str) -> None:
    lib.pyggml_log_test_emit(level, text.encode())


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """The log is started and earlier messages are out of the way."""
    start_backend()
    log.flush()


def test_a_message_goes_to_the_logger_of_its_library_with_its_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyggml"):
        for level in (lib.GGML_LOG_LEVEL_DEBUG, lib.GGML_LOG_LEVEL_INFO, lib.GGML_LOG_LEVEL_WARN):
            emit(level, f"level {level}\n")
        log.flush()
    assert caplog.record_tuples == [
        ("pyggml.ggml", logging.DEBUG, "level 1"),
        ("pyggml.ggml", logging.INFO, "level 2"),
        ("pyggml.ggml", logging.WARNING, "level 3"),
    ]


def test_loading_a_model_logs_as_llama(caplog: pytest.LogCaptureFixture, smollm2_path: Path) -> None:
    with caplog.at_level(logging.INFO, "pyggml"), Model(smollm2_path, vocab_only=True):
        log.flush()
    assert any("general.architecture" in r.message and r.name == "pyggml.llama" for r in caplog.records)


def test_continued_pieces_are_one_message(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyggml"):
        emit(lib.GGML_LOG_LEVEL_INFO, "loading ")
        for _ in range(3):
            emit(CONTINUED, ".")
        emit(CONTINUED, " done\n")
        log.flush()
    assert [record.message for record in caplog.records] == ["loading ... done"]


def test_pieces_of_two_threads_do_not_mix(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyggml"):
        emit(lib.GGML_LOG_LEVEL_INFO, "mine")
        thread = threading.Thread(target=emit, args=(lib.GGML_LOG_LEVEL_INFO, "theirs\n"))
        thread.start()
        thread.join()
        emit(CONTINUED, " too\n")
        log.flush()
    assert sorted(record.message for record in caplog.records) == ["mine too", "theirs"]


def test_a_percent_sign_is_no_format(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyggml"):
        emit(lib.GGML_LOG_LEVEL_INFO, "100%s of %d\n")
        log.flush()
    assert caplog.records[-1].getMessage() == "100%s of %d"


def test_a_handler_that_calls_the_bindings_does_not_deadlock(model: Model) -> None:
    seen: list[int] = []

    class Tokenizing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(len(model.vocab.tokenize(record.getMessage())))

    logger, handler = logging.getLogger("pyggml.ggml"), Tokenizing()
    logger.addHandler(handler)
    try:
        emit(lib.GGML_LOG_LEVEL_ERROR, "one two three\n")
        log.flush()
    finally:
        logger.removeHandler(handler)
    assert seen == [3]


def test_the_interpreter_exits_cleanly_with_threads_that_still_log(smollm2_path: Path) -> None:
    program = f"""
import threading
from pyggml import Model
from pyggml.ffi import lib
from pyggml.model import start_backend
model = Model({str(smollm2_path)!r}, vocab_only=True)
def chatter():
    while True:
        lib.pyggml_log_test_emit(1, b"still here\\n")
threads = [threading.Thread(target=chatter, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
model.close()
print("end")
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
