"""The chat page in a real browser, with an engine that says what the test wants it to say."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyggml_server.messages import Notice

from tests.web.browser import BrowserPage, browser
from tests.web.chat_page import PARKED, answer, ask, built_page, said
from tests.web.fakes import FakeSettings
from tests.web.running import Running, running

PROPS = {
    "default_generation_settings": {"n_ctx": 512, "params": {}},
    "total_slots": 4,
    "model_alias": "a-model",
    "model_path": "a-model.gguf",
    "modalities": {"vision": False, "audio": False, "video": False},
    "chat_template": "",
    "build_info": "b1",
}
MODELS = {"object": "list", "data": [{"id": "a-model", "object": "model"}], "models": [{"model": "a-model"}]}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    built_page()
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def server() -> Iterator[Running]:
    with running(chat_page=built_page()) as started:
        started.engine.translator.props_json = json.dumps(PROPS).encode()
        started.engine.translator.models_json = json.dumps(MODELS).encode()
        yield started


def say(server: Running, task_id: int, text: str) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}}], "id": "chatcmpl-1", "model": "a-model"}
    server.engine.say_tokens(task_id, json.dumps(chunk).encode())


def finish(server: Running, task_id: int) -> None:
    chunk = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "id": "chatcmpl-1", "model": "a-model"}
    server.engine.finish(task_id, json.dumps(chunk).encode())


def test_a_parked_chat_is_shown_as_such_until_it_is_back(page: BrowserPage, server: Running) -> None:
    page.open(server.url)
    ask(page, "Tell me of the sea.")
    (task_id,) = server.engine.next_task_ids()
    say(server, task_id, "The sea is")
    page.until(lambda: "The sea is" in answer(page))
    assert said(page) == []
    server.engine.say(Notice(task_id, "preempted"))
    page.until(lambda: said(page) == [PARKED])
    server.engine.say(Notice(task_id, "resumed"))
    page.until(lambda: said(page) == [])
    say(server, task_id, " wide.")
    finish(server, task_id)
    page.until(lambda: "The sea is wide." in answer(page))


def test_a_chat_that_ends_while_it_is_parked_is_parked_no_longer(page: BrowserPage, server: Running) -> None:
    page.open(server.url)
    ask(page, "Tell me of the sea.")
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Notice(task_id, "preempted"))
    page.until(lambda: said(page) == [PARKED])
    finish(server, task_id)
    page.until(lambda: said(page) == [])


def test_a_page_that_is_loaded_anew_shows_that_its_chat_is_parked(page: BrowserPage, server: Running) -> None:
    page.open(server.url)
    ask(page, "Count.")
    (task_id,) = server.engine.next_task_ids()
    say(server, task_id, "one,")
    server.engine.say(Notice(task_id, "preempted"))
    page.until(lambda: said(page) == [PARKED])
    page.driver.refresh()
    page.until(lambda: said(page) == [PARKED] and "one," in answer(page))
    server.engine.say(Notice(task_id, "resumed"))
    finish(server, task_id)
    page.until(lambda: said(page) == [])


def test_the_list_of_chats_shows_which_are_parked(page: BrowserPage, server: Running) -> None:
    page.open(server.url)
    ask(page, "A chat that waits.")
    (task_id,) = server.engine.next_task_ids()
    server.engine.say(Notice(task_id, "preempted"))
    page.until(lambda: said(page) == [PARKED])
    page.click("[aria-label='New chat']")
    page.until(lambda: said(page) == [])  # the new one is not parked
    page.click("[aria-label='Expand navigation']")
    paused, spinning = (
        f"div[aria-label='Stop generation'] {icon}" for icon in (".lucide-circle-pause", ".animate-spin")
    )
    page.until(lambda: page.count(paused) == 1)
    server.engine.say(Notice(task_id, "resumed"))
    page.until(lambda: page.count(paused) == 0 and page.count(spinning) == 1)
    finish(server, task_id)


def test_an_answer_goes_on_in_a_page_that_was_loaded_anew_in_the_middle_of_it(
    page: BrowserPage, server: Running
) -> None:
    page.open(server.url)
    ask(page, "Count.")
    (task_id,) = server.engine.next_task_ids()
    say(server, task_id, "one, ")
    page.until(lambda: "one," in answer(page))
    page.driver.refresh()
    say(server, task_id, "two, ")
    page.until(lambda: "one, two," in answer(page))
    say(server, task_id, "three")
    finish(server, task_id)
    page.until(lambda: "one, two, three" in answer(page))
    assert server.engine.inbound.empty(), "nobody cancelled it or asked again"


def test_the_page_behind_a_prefix_finds_its_files_and_its_server(page: BrowserPage) -> None:
    with running(FakeSettings(api_prefix="/llama"), chat_page=built_page()) as server:
        server.engine.translator.props_json = json.dumps(PROPS).encode()
        page.open(server.url + "/llama/")
        ask(page, "Hello.")
        (task_id,) = server.engine.next_task_ids()
        say(server, task_id, "Good day.")
        finish(server, task_id)
        page.until(lambda: "Good day." in answer(page))
