"""Start, end, and exit codes."""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import requests
from pyggml_server.app import Server
from pyggml_server.download.ports import DownloadError

from tests.web.fakes import PATIENCE_S, FakeEngine, FakeSettings, engine_factory, token
from tests.web.running import Running, one_error, running

PROGRAM = Path(__file__).with_name("signal_program.py")


def test_the_log_has_the_lines_that_wrappers_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running() as server:
        assert caplog.messages[-3:] == [
            "model loaded",
            f"listening on {server.url}",
            f"server is listening on {server.url} - starting the main loop",
        ]


def test_a_busy_port_ends_the_start_before_an_engine_is_made(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    made: queue.SimpleQueue[FakeEngine] = queue.SimpleQueue()
    assert Server(FakeSettings(port=port), engine_factory(made)).run() == 1
    assert made.empty()
    assert f"127.0.0.1:{port}: Address already in use" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (FakeSettings(public_path="/no/such/folder"), "static assets path not found: /no/such/folder"),
        (FakeSettings(ssl_key_file="/no/key", ssl_cert_file="/no/cert"), "couldn't load the TLS key and certificate"),
    ],
)
def test_files_that_are_missing_end_the_start(
    settings: FakeSettings, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert Server(settings, engine_factory(queue.SimpleQueue())).run() == 1
    assert message in caplog.text


def test_a_model_that_cannot_be_loaded_ends_the_server_with_code_1(caplog: pytest.LogCaptureFixture) -> None:
    server = Running(FakeSettings(), is_loaded=False)
    server.engine.fail("failed to load model, 'missing.gguf'")
    assert server.wait() == 1
    assert server.engine.stopped.is_set()
    assert caplog.messages.index("failed to load model, 'missing.gguf'") < caplog.messages.index(
        "exiting due to model loading error"
    )


def test_an_engine_that_breaks_later_ends_the_server_with_code_1(caplog: pytest.LogCaptureFixture) -> None:
    server = Running(FakeSettings(), is_loaded=True)
    server.engine.fail("the device is lost")
    assert server.wait() == 1
    assert "the device is lost" in caplog.messages


def test_an_interrupt_ends_the_server_with_code_0() -> None:
    server = Running(FakeSettings(), is_loaded=True)
    assert server.end() == 0
    assert server.engine.stopped.is_set()


def test_an_interrupt_while_loading_ends_the_server_with_code_0() -> None:
    server = Running(FakeSettings(), is_loaded=False)
    assert server.end() == 0


class Fetching:
    """A server whose models come from somewhere: `may_end` lets that end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end, self.has_begun = threading.Event(), threading.Event()
        self.error = error
        self.engines: queue.SimpleQueue[FakeEngine] = queue.SimpleQueue()
        self.server = Server(FakeSettings(), engine_factory(self.engines), fetch=self._fetch)
        self.code: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=lambda: self.code.put(self.server.run()), daemon=True).start()
        self.engine = self.engines.get(timeout=PATIENCE_S)
        assert self.has_begun.wait(PATIENCE_S)

    def _fetch(self) -> None:
        self.has_begun.set()
        assert self.may_end.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error


def test_the_engine_starts_once_the_models_are_there() -> None:
    fetching = Fetching()
    assert requests.get(fetching.server.addresses[0] + "/health", timeout=PATIENCE_S).status_code == 503
    assert not fetching.engine.started.is_set()
    fetching.may_end.set()
    assert fetching.engine.started.wait(PATIENCE_S)
    fetching.engine.finish_loading()
    assert fetching.server.is_ready.wait(PATIENCE_S)
    fetching.server.interrupt()
    assert fetching.code.get(timeout=PATIENCE_S) == 0
    assert not fetching.server.left_native_running


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DownloadError("-hf a/b: gone"), "-hf a/b: gone"),
        (RuntimeError("a fault of ours"), "a download failed: a fault"),
    ],
)
def test_models_that_cannot_be_had_end_the_server_with_code_1(
    error: Exception, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    fetching = Fetching(error)
    fetching.may_end.set()
    assert fetching.code.get(timeout=PATIENCE_S) == 1
    assert not fetching.engine.started.is_set()
    assert message in caplog.text


def test_an_interrupt_does_not_wait_for_models_that_are_on_their_way() -> None:
    fetching = Fetching()
    fetching.server.interrupt()
    assert fetching.code.get(timeout=PATIENCE_S) == 0
    assert fetching.server.left_native_running
    fetching.may_end.set()


def test_requests_under_way_end_as_unavailable_at_an_interrupt() -> None:
    server = Running(FakeSettings(), is_loaded=True)
    plain = server.posting("/completion", "{}")
    (plain_id,) = server.engine.next_task_ids()
    stream = server.posting_stream('{"stream":true}')
    (stream_id,) = server.engine.next_task_ids()
    server.engine.say(token(stream_id, b"1"))
    with stream.response() as response:
        server.server.interrupt()
        assert one_error(plain.response())[:2] == (503, "unavailable_error")
        body = response.text
        assert body.startswith("data: 1\n\n")
        assert "unavailable_error" in body
        assert "[DONE]" not in body
    assert server.wait() == 0
    assert {server.engine.next_cancelled_id(), server.engine.next_cancelled_id()} == {plain_id, stream_id}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_with_code_0(number: signal.Signals) -> None:
    with start_program() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0


def test_a_second_signal_ends_the_process_at_once_with_code_1() -> None:
    with start_program("hang") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"stopping\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 1
        assert b"Received second interrupt, terminating immediately.\n" in process.stderr.read()


def test_the_first_request_waits_for_no_import() -> None:
    with start_program(name="first_request_program") as process:
        said, log = process.communicate(timeout=PATIENCE_S)
    assert said == b"imported:\n", log


def start_program(*arguments: str, name: str = "signal_program") -> subprocess.Popen[bytes]:
    """A fake server as a process of its own."""
    root = PROGRAM.parents[2]
    command = [sys.executable, "-m", f"tests.web.{name}", *arguments]
    environment = {"PYTHONPATH": f"{root}:{root / 'server'}"}
    return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
