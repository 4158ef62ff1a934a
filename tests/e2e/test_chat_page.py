"""The chat page over a real server, in a browser: a chat, a setting, parks in the middle of an answer, the way to the
pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.comparing import CLEAR_QUESTION
from tests.e2e.conftest import StartServer
from tests.web.browser import BrowserPage, browser
from tests.web.chat_page import answer, ask, built_page

ANSWER = "a, b, c, d, e,"  # how the model begins its answer to `CLEAR_QUESTION`, greedily
GREEDY = ("--ui-config", '{"temperature":0}')
GREEDY_AND_SHORT = ("--ui-config", '{"temperature":0,"max_tokens":10}')


@pytest.fixture
def page(tmp_path: Path) -> Iterator[BrowserPage]:
    built_page()
    with browser(tmp_path) as started:
        yield started


def complaints(page: BrowserPage, url: str) -> list[object]:
    """What the browser's console says. The page asks whether there are tools, and without --tools is told 403."""
    found = [entry["message"] for entry in page.complaints()]
    return [message for message in found if not str(message).startswith(url + "/tools ")]


def test_a_chat_is_answered_and_the_browser_has_no_complaint(page: BrowserPage, start_ours: StartServer) -> None:
    with start_ours(*GREEDY_AND_SHORT) as server:
        page.open(server.url)
        ask(page, CLEAR_QUESTION)
        page.until(lambda: answer(page).startswith(ANSWER + "\n"))
        assert complaints(page, server.url) == []


def test_a_setting_of_the_page_reaches_the_model(page: BrowserPage, start_ours: StartServer) -> None:
    with start_ours(*GREEDY) as server:
        page.open(server.url)
        page.until(lambda: page.count("[aria-label=Settings]") == 1)
        page.click("[aria-label=Settings]")
        page.click_text("Sampling & Penalties")
        page.until(lambda: page.count("#max_tokens") == 1)
        page.type_into("max_tokens", "5")
        page.click_text("Save settings")
        ask(page, CLEAR_QUESTION)
        page.until(lambda: "\n5 tokens\n" in answer(page))
        assert answer(page).startswith("a, b, c\n")


def test_the_page_offers_the_tools_that_the_server_has(page: BrowserPage, start_ours: StartServer) -> None:
    with start_ours("--tools", "read_file,get_info") as server:
        page.open(server.url)
        page.until(lambda: page.count("[aria-label=Settings]") == 1)
        page.click("[aria-label=Settings]")
        page.click_text("Tools")
        page.until(lambda: "Server\n2 tools" in page.script("return document.body.innerText"))


def test_parks_leave_the_text_as_it_is_and_the_link_leads_to_where_they_are_shown(
    page: BrowserPage, start_ours: StartServer
) -> None:
    with start_ours(*GREEDY_AND_SHORT, LLAMA_SERVER_PREEMPT_EVERY="4") as server:
        page.open(server.url)
        ask(page, CLEAR_QUESTION)
        page.until(lambda: answer(page).startswith(ANSWER + "\n"))
        page.click("[aria-label='KV pool']")
        page.driver.switch_to.window(page.driver.window_handles[-1])
        page.until_text("status", "Live")
        assert page.text("lanes-text") == "2 parks and 2 restores in the last minute."
        assert page.driver.current_url == server.url + "/pool"
