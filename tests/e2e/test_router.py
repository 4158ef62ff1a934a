"""Several models in one server: llama-server's router around pyggml-server for each, with our flags in every one."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.download.look_alike import Hub
from tests.e2e.conftest import running
from tests.e2e.program import PATIENCE_S, ServerProcess, our_program

FLAGS = ["--port", "0", "-c", "256", "-t", "1", "--no-warmup", "--cache-ram", "0", "-fit", "off", "--metrics"]
CHAT = {"messages": [{"role": "user", "content": "Name three seas."}], "max_tokens": 4, "temperature": 0}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"LLAMA_CACHE": str(tmp_path / "cache"), "NO_PROXY": "localhost,127.0.0.1"}


@pytest.fixture
def router(small_models: Path, environment: dict[str, str]) -> Iterator[ServerProcess]:
    flags = ["--models-dir", str(small_models), "--models-max", "1", "--offline", *FLAGS]
    with running(our_program(), flags, environment) as server:
        yield server


def models(router: ServerProcess) -> dict[str, dict[str, object]]:
    """What it says of each model."""
    return {model["id"]: model for model in router.get("/v1/models").json()["data"]}


def state_of(router: ServerProcess, name: str) -> object:
    status = models(router)[name]["status"]
    assert isinstance(status, dict)
    return status["value"]


def port_of(router: ServerProcess, name: str) -> int:
    status = models(router)[name]["status"]
    assert isinstance(status, dict)
    arguments = list(status["args"])
    return int(arguments[arguments.index("--port") + 1])


def test_a_request_has_the_model_loaded_that_it_names_and_another_one_unloaded(router: ServerProcess) -> None:
    assert {name: state_of(router, name) for name in ("one", "two")} == {"one": "unloaded", "two": "unloaded"}
    for name, other in ("one", "two"), ("two", "one"):
        answer = router.post("/v1/chat/completions", {**CHAT, "model": name})
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == name
        assert state_of(router, name) == "loaded"
        assert state_of(router, other) == "unloaded"


def test_a_model_that_is_not_there_is_an_error_of_the_request(router: ServerProcess) -> None:
    answer = router.post("/v1/chat/completions", {**CHAT, "model": "three"})
    assert answer.status_code == 400
    assert "three" in answer.json()["error"]["message"]


def test_a_model_is_unloaded_by_hand(router: ServerProcess) -> None:
    with events_of(router) as events:
        assert router.post("/models/load", {"model": "one"}).json() == {"success": True}
        wait_for(events, "one", "loaded")
        assert router.post("/models/unload", {"model": "one"}).json() == {"success": True}
        wait_for(events, "one", "unloaded")


class events_of:  # noqa: N801
    """The router's events, as they come."""

    def __init__(self, router: ServerProcess) -> None:
        self._response = router.get_stream("/models/sse")
        self.events: queue.SimpleQueue[dict[str, object]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> queue.SimpleQueue[dict[str, object]]:
        self._thread.start()
        return self.events

    def __exit__(self, *_: object) -> None:
        """Leaves the daemon thread to its reading: closing what it reads would wait for the next event."""

    def _read(self) -> None:
        try:
            for line in self._response.iter_lines():
                if line.startswith(b"data: "):
                    self.events.put(json.loads(line.removeprefix(b"data: ")))
        except (requests.RequestException, AttributeError, ValueError):
            """It was closed."""


def wait_for(events: queue.SimpleQueue[dict[str, object]], model: str, status: str) -> None:
    while True:
        event = events.get(timeout=PATIENCE_S)
        data = event.get("data")
        if event.get("model") == model and isinstance(data, dict) and data.get("status") == status:
            return


def test_a_model_sleeps_and_wakes_under_the_router(small_models: Path, environment: dict[str, str]) -> None:
    flags = ["--models-dir", str(small_models), "--sleep-idle-seconds", "1", "--offline", *FLAGS]
    with running(our_program(), flags, environment) as router, events_of(router) as events:
        first = router.post("/v1/chat/completions", {**CHAT, "model": "one"}).json()
        wait_for(events, "one", "sleeping")
        again = router.post("/v1/chat/completions", {**CHAT, "model": "one"}).json()
        assert again["choices"] == first["choices"]


def test_models_end_with_the_router(small_models: Path, environment: dict[str, str]) -> None:
    with running(our_program(), ["--models-dir", str(small_models), "--offline", *FLAGS], environment) as router:
        assert router.post("/v1/chat/completions", {**CHAT, "model": "one"}).status_code == 200
        port = port_of(router, "one")
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{port}/health", timeout=PATIENCE_S)


def test_models_and_presets_of_the_hub_come_over_tls(
    hub: Hub, authority_file: Path, environment: dict[str, str], small_models: Path
) -> None:
    environment.update(HF_ENDPOINT=hub.site.url, SSL_CERT_FILE=str(authority_file))
    hub.repositories["user/one-GGUF"] = {"one-F16.gguf": (small_models / "one.gguf").read_bytes()}
    hub.repositories["user/preset"] = {"preset.ini": b"[mine]\nhf-repo = user/one-GGUF\n"}
    with running(our_program(), ["-hf", "user/preset", *FLAGS], environment) as router, events_of(router) as events:
        assert "mine" in models(router)
        assert router.post("/models", {"model": "user/one-GGUF:F16"}).json() == {"success": True}
        names = []
        while "download_finished" not in names:
            names.append(events.get(timeout=PATIENCE_S).get("event"))
        assert "download_progress" in names
        assert router.post("/v1/chat/completions", {**CHAT, "model": "mine"}).status_code == 200
    assert len(hub.files.paths("GET")) == 2  # the preset and the model, once
    assert not [path for path in Path(environment["LLAMA_CACHE"]).rglob("*") if "InProgress" in path.name]
