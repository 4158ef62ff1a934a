"""What goes wrong under a router: models that cannot be loaded, servers that are killed, streams whose model goes, many
requests at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.e2e.conftest import running
from tests.e2e.program import ServerProcess, our_program
from tests.e2e.test_router import CHAT, FLAGS, events_of, port_of, state_of, wait_for

LONG = {**CHAT, "max_tokens": 100_000, "ignore_eos": True, "stream": True}


@pytest.fixture
def router(small_models: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """Its models: one and two, and one that is no model."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.gguf").symlink_to(small_models / f"{name}.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF and nothing that follows")
    environment = {"LLAMA_CACHE": str(tmp_path / "cache")}
    # --context-shift: a chat goes on for ever
    flags = ["--models-dir", str(folder), "--offline", "--context-shift", *FLAGS]
    with running(our_program(), flags, environment) as server:
        yield server


def chat(router: ServerProcess, model: str) -> requests.Response:
    return router.post("/v1/chat/completions", {**CHAT, "model": model})


def process_of(router: ServerProcess, model: str) -> int:
    """The model's server."""
    port = port_of(router, model)
    words = f"\0--port\0{port}\0".encode()
    (found,) = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if words in path.read_bytes()]
    return int(found.name)


def begin_stream(router: ServerProcess, model: str) -> Iterator[bytes]:
    """The lines of a chat that goes on until something ends it; its first token is there."""
    response = router.post("/v1/chat/completions", {**LONG, "model": model}, stream=True)
    lines: Iterator[bytes] = response.iter_lines()
    assert next(line for line in lines if b'"content":"' in line)
    return lines


def read_to_the_end(lines: Iterator[bytes]) -> list[bytes]:
    """What is left of a stream, which may be cut."""
    read = []
    try:
        for line in lines:
            read.append(line)
    except requests.exceptions.ChunkedEncodingError:
        """Its server is gone."""
    return read


def test_a_model_that_cannot_be_loaded_is_an_error_of_its_requests_only(router: ServerProcess) -> None:
    assert chat(router, "one").status_code == 200
    refused = chat(router, "broken")
    assert refused.status_code >= 400
    assert "broken" in refused.json()["error"]["message"]
    assert state_of(router, "broken") == "unloaded"
    assert chat(router, "one").status_code == 200


def test_a_killed_server_cuts_its_streams_and_is_started_again_by_the_next_request(router: ServerProcess) -> None:
    lines = begin_stream(router, "one")
    with events_of(router) as events:
        os.kill(process_of(router, "one"), signal.SIGKILL)
        assert b"data: [DONE]" not in read_to_the_end(lines)
        wait_for(events, "one", "unloaded")
    assert chat(router, "one").status_code == 200


def test_a_stream_ends_when_its_model_is_unloaded_and_others_go_on(router: ServerProcess) -> None:
    ends, goes_on = begin_stream(router, "one"), begin_stream(router, "two")
    with events_of(router) as events:
        assert router.post("/models/unload", {"model": "one"}).json() == {"success": True}
        read_to_the_end(ends)
        wait_for(events, "one", "unloaded")
    assert next(line for line in goes_on if b'"content":"' in line)
    assert chat(router, "one").status_code == 200


def test_requests_that_come_at_once_load_a_model_once(router: ServerProcess) -> None:
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda name: chat(router, name), ["one", "two"] * 3))
    assert [answer.status_code for answer in answers] == [200] * 6
    assert [answer.json()["model"] for answer in answers] == ["one", "two"] * 3
    log = router.whole_log()
    assert [log.count(f"spawning server instance with name={name} ") for name in ("one", "two")] == [1, 1]


def test_a_client_that_leaves_ends_its_chat_on_the_model_s_server(router: ServerProcess) -> None:
    response = router.post("/v1/chat/completions", {**LONG, "model": "one"}, stream=True)
    assert next(response.iter_lines())
    response.close()
    # its slot is idle once nothing is processed
    while any(slot["is_processing"] for slot in router.get("/slots?model=one").json()):
        """Ask again: each answer comes after a pass of the engine."""
    assert chat(router, "one").status_code == 200
