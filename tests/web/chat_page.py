"""The built chat page, and what a person does with it in a browser.

Where it was not built, tests of it are skipped, or fail where PYGGML_TEST_BROWSER is `required`, as it is in CI.
"""

from __future__ import annotations

import os

import pytest
from pyggml_server.web.chat_page import ChatPage

from tests.web.browser import BrowserPage

INPUT = "textarea"
ASSISTANT = "[aria-label='Assistant message with actions']"
STATUS = "[role=status]"
PARKED = "Parked by the server until the KV cache has room again."


def built_page() -> ChatPage:
    """The page as the set-up built it."""
    page = ChatPage.in_folder()
    if page is None:
        message = "the chat page was not built: python -m build_support page says why"
        if os.environ.get("PYGGML_TEST_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return page


def ask(page: BrowserPage, text: str) -> None:
    """Type into the chat and send it."""
    page.until(lambda: page.count(INPUT) == 1)
    page.press(INPUT, text + "\n")


def answer(page: BrowserPage) -> str:
    """The text of the last answer as it stands, with what surrounds it."""
    texts = page.texts(ASSISTANT)
    return texts[-1] if texts else ""


def said(page: BrowserPage) -> list[str]:
    """What the page tells of the state of the stream."""
    return [text for text in page.texts(STATUS) if text]
