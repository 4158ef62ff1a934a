"""The pages of a router: the models, the pool of each, and the chat page, with and without an API key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.e2e.conftest import running
from tests.e2e.program import PATIENCE_S, ServerProcess, our_program
from tests.e2e.test_router import CHAT, FLAGS
from tests.web.browser import browser

KEY = "sesame"
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}
PRESETS = """
[*]
preempt-ram = 11

[one]
model = {folder}/one.gguf

[two]
model = {folder}/two.gguf
preempt-ram = 22
LLAMA_ARG_PREEMPT_POLICY = oldest
preempt-async = false
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"LLAMA_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def presets(small_models: Path, tmp_path: Path) -> Path:
    file = tmp_path / "presets.ini"
    file.write_text(PRESETS.format(folder=small_models), encoding="utf-8")
    return file


@pytest.fixture
def router(small_models: Path, environment: dict[str, str]) -> Iterator[ServerProcess]:
    flags = ["--models-dir", str(small_models), "--preempt-ram", "33", "--api-key", KEY, "--offline", *FLAGS]
    with running(our_program(), [*flags, "--context-shift"], environment) as server:
        yield server


def ask(router: ServerProcess, path: str) -> requests.Response:
    return requests.get(router.url + path, headers=AUTHORIZED, timeout=PATIENCE_S)


def limit_mib(router: ServerProcess, model: str) -> int:
    """The model's --preempt-ram. Loads it."""
    limit: int = ask(router, f"/pool.json?model={model}").json()["pool"]["limit_bytes"]
    return limit >> 20


def test_the_numbers_of_a_pool_are_those_of_the_model_that_the_query_names(router: ServerProcess) -> None:
    assert limit_mib(router, "one") == 33
    assert ask(router, "/pool.json").status_code == 400
    assert "nobody" in ask(router, "/pool.json?model=nobody").json()["error"]["message"]
    refused = ask(router, "/pool.json?model=two&autoload=false")
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "model is not loaded")
    assert requests.get(router.url + "/pool.json?model=one", timeout=PATIENCE_S).status_code == 401


def test_flags_of_ours_may_be_in_a_preset_file_for_all_models_or_for_one(
    presets: Path, environment: dict[str, str]
) -> None:
    flags = ["--models-preset", str(presets), "--api-key", KEY, "--offline", *FLAGS]
    with running(our_program(), flags, environment) as router:
        assert limit_mib(router, "one") == 11
        assert limit_mib(router, "two") == 22
        models = {model["id"]: model["status"]["args"] for model in ask(router, "/models").json()["data"]}
        assert models["two"][models["two"].index("--preempt-policy") + 1] == "oldest"
        assert "--no-preempt-async" in models["two"]
        assert "--preempt-policy" not in models["one"]


def test_the_command_line_wins_over_a_preset_and_a_preset_over_the_environment(
    presets: Path, environment: dict[str, str]
) -> None:
    environment["LLAMA_ARG_PREEMPT_RAM"] = "44"
    flags = ["--models-preset", str(presets), "--api-key", KEY, "--offline", *FLAGS]
    with running(our_program(), flags, environment) as router:
        assert limit_mib(router, "two") == 22
    with running(our_program(), [*flags, "--preempt-ram=55"], environment) as router:
        assert limit_mib(router, "two") == 55


def test_a_browser_without_a_key_gets_all_of_the_chat_page_and_nothing_else(router: ServerProcess) -> None:
    page = requests.get(router.url + "/", timeout=PATIENCE_S).text
    files = re.findall(r'"\./([\w./-]+\.js)"', page)
    assert files
    for file in files:
        assert requests.get(f"{router.url}/{file}", timeout=PATIENCE_S).status_code == 200, file
    for path in ("/slots?model=one", "/models", "/nowhere"):
        assert requests.get(router.url + path, timeout=PATIENCE_S).status_code == 401, path


def test_the_page_of_the_pools_lists_the_models_and_leads_to_each(router: ServerProcess, tmp_path: Path) -> None:
    answer = requests.post(
        router.url + "/v1/chat/completions", json={**CHAT, "model": "one"}, headers=AUTHORIZED, timeout=PATIENCE_S
    )
    assert answer.status_code == 200, answer.text
    with browser(tmp_path / "profile") as page:
        page.open(router.url + "/pool")
        page.until_text("status", "Invalid API Key")
        page.type_into("key", KEY)
        page.click("#key-form button")
        page.until_text("status", "2 models")
        assert page.texts("#models li") == ["one\nloaded", "two\nunloaded"]
        page.click("#models li:nth-child(2) a")
        page.until_text("status", "model is not loaded")
        page.click("#all-models")
        page.until_text("status", "2 models")
        page.click("#models a")
        page.until_text("status", "Live")
        assert page.texts("h1") == ["KV pool one"]
        body = {**CHAT, "model": "one", "max_tokens": -1, "ignore_eos": True, "stream": True}
        with requests.post(
            router.url + "/v1/chat/completions", json=body, headers=AUTHORIZED, timeout=PATIENCE_S, stream=True
        ) as running_chat:
            assert running_chat.status_code == 200
            page.click_text("Park")
            page.until_text("by-hand", "is parked until it is called back")
            page.click_text("Call back")
            page.until_text("by-hand", "is called back")
        assert " of 256 cells in use" in page.text("cells-text")
        assert [entry for entry in page.complaints() if "Policy" in str(entry["message"])] == []
