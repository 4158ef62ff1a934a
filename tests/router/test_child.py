"""The lines between a model's server and its router."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading

import pytest
from pyggml_server.download.ports import DownloadError
from pyggml_server.router import child
from pyggml_server.router.child import RouterLink

PATIENCE_S = 60.0
EXIT = b"a line of no meaning\n" + child.EXIT_LINE + b"\n"


class Heard:
    """What a router reads."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def states(self) -> list[tuple[str, object]]:
        found = []
        for piece in self.pieces:
            before, line, after = piece.decode().split("\n")
            assert before == after == ""
            told = json.loads(line.removeprefix(child.STATE_LINE))
            found.append((told["state"], told["payload"]))
        return found


@pytest.fixture
def heard() -> Heard:
    return Heard()


def link(heard: Heard, stdin: bytes = EXIT, *, is_download: bool = False) -> RouterLink:
    return RouterLink(is_download, io.BytesIO(stdin), heard.pieces.append)


def test_without_a_router_there_is_no_link() -> None:
    environ = {"PATH": "/bin"}
    assert RouterLink.from_environment(environ) is None
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(("mode", "is_download"), [("download", True), ("", False)])
def test_a_router_s_variables_are_read_once_and_gone_for_what_is_started_next(mode: str, is_download: bool) -> None:
    environ = {
        child.PORT_VARIABLE: "8080",
        child.MODE_VARIABLE: mode,
        child.ENDPOINT_VARIABLE: "https://hub/",
        "MODEL_ENDPOINT": "http://127.0.0.1:1/secret/hub/",
    }
    found = RouterLink.from_environment(environ)
    assert found is not None
    assert found.is_download is is_download
    assert environ == {"MODEL_ENDPOINT": "https://hub/"}


def test_each_state_is_one_line_that_closes_the_line_before_it(heard: Heard) -> None:
    there = link(heard)
    there.tell_load_progress(0.5)
    there.tell_ready(json.dumps({"models": [], "data": [{"id": "x"}]}).encode())
    there.tell_asleep()
    there.tell_download_progress("https://hub/x", 1, 2)
    assert heard.states() == [
        ("loading", {"stages": ["text_model"], "current": "text_model", "value": 0.5}),
        ("ready", {"id": "x"}),
        ("sleeping", {}),
    ]


def test_progress_is_told_at_first_and_at_last_and_not_at_each_step(heard: Heard) -> None:
    there = link(heard)
    for i in range(1001):
        there.tell_load_progress(i / 1000)
    values = [payload["value"] for _, payload in heard.states() if isinstance(payload, dict)]
    assert values[0] == 0
    assert values[-1] == 1
    assert len(values) < 1001


def test_the_router_s_word_ends_the_server(heard: Heard) -> None:
    ended = threading.Event()
    link(heard).watch(ended.set)
    assert ended.wait(PATIENCE_S)


def test_without_its_router_a_server_ends_with_code_1() -> None:
    program = (
        "import threading; from pyggml_server.router.child import RouterLink; import os;"
        "os.environ['LLAMA_SERVER_ROUTER_PORT'] = '1';"
        "RouterLink.from_environment(os.environ).watch(lambda: None); threading.Event().wait()"
    )
    environment = {**os.environ, "PYTHONPATH": "server"}
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, env=environment, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1


def fail() -> None:
    raise DownloadError("gone")


@pytest.mark.parametrize(
    ("fetch", "result"), [(None, "download_finished"), (lambda: None, "download_finished"), (fail, "download_failed")]
)
def test_a_download_tells_how_it_went_and_ends_when_the_router_has_heard_it(
    heard: Heard, fetch: object, result: str
) -> None:
    assert link(heard, is_download=True).download(fetch) == 0  # type: ignore[arg-type]
    assert heard.states() == [("downloading", {"result": result})]
