"""How often a download is told of."""

from __future__ import annotations

import logging
import sys

import pytest
from pyggml_server.download.progress import LEAST_STEP_BYTES, MIB, Progress


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def move(n_bytes: int, n_bytes_before: int = 0) -> None:
    progress = Progress("x.gguf", "hub", n_bytes, n_bytes_before)
    for _ in range(n_bytes_before, n_bytes, MIB):
        progress.advance(MIB)


def test_a_large_file_is_told_of_ten_times(caplog: pytest.LogCaptureFixture) -> None:
    move(20 * LEAST_STEP_BYTES)
    assert len(caplog.messages) == 1 + 10
    assert caplog.messages[0] == "downloading x.gguf from hub, 1280.0 MiB"
    assert caplog.messages[-1] == "downloading x.gguf: 1280 of 1280 MiB"


def test_a_small_one_once(caplog: pytest.LogCaptureFixture) -> None:
    move(LEAST_STEP_BYTES - MIB)
    assert caplog.messages == ["downloading x.gguf from hub, 63.0 MiB"]


def test_one_that_is_continued_says_from_where(caplog: pytest.LogCaptureFixture) -> None:
    move(20 * LEAST_STEP_BYTES, 19 * LEAST_STEP_BYTES)
    assert caplog.messages == ["downloading x.gguf from hub, 1280.0 MiB, continued at 1216.0 MiB"]


def test_on_a_terminal_llama_cpp_s_bar_is_enough(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    move(20 * LEAST_STEP_BYTES)
    assert len(caplog.messages) == 1


def test_one_of_unknown_size_is_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("x.gguf", "hub", 0)
    progress.advance(LEAST_STEP_BYTES)
    assert caplog.messages == ["downloading x.gguf from hub", "downloading x.gguf: 64 MiB"]
