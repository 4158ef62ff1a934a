"""A real browser without a window, and the page that is open in it.

Needs Chromium and ChromeDriver on the PATH (Debian: chromium, chromium-driver). Without them the tests are skipped, or
fail where PYGGML_TEST_BROWSER is `required`, as it is in CI.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.web.fakes import PATIENCE_S

PHONE_PX = (360, 740)
DESK_PX = (1100, 900)
# as root there is no sandbox; the rest keeps the browser from talking to anybody but the test's server
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# SVG text has no innerText, and that of a hidden element is not what is shown
SHOWN_TEXTS = """
return [...document.querySelectorAll(arguments[0])]
    .map((e) => (e.checkVisibility() ? e.innerText ?? e.textContent : ""));
"""


class BrowserPage:
    """The open page, as a reader sees it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str, size_px: tuple[int, int] = DESK_PX, scheme: str = "light") -> None:
        """Load it anew in a window of that size, light or dark."""
        width, height = size_px
        screen: dict[str, object] = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._tell("Emulation.setDeviceMetricsOverride", screen)
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self._tell("Emulation.setEmulatedMedia", {"features": media})
        self.driver.get(url)

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until it holds; the page draws twice a second."""
        WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.05).until(lambda _: holds())

    def until_text(self, element_id: str, wanted: str) -> None:
        """Wait until the element says so."""
        self.until(lambda: wanted in self.text(element_id))

    def text(self, element_id: str) -> str:
        """The element's text as it is shown."""
        (text,) = self.texts(f"#{element_id}")
        return text

    def texts(self, selector: str) -> list[str]:
        """The shown text of every element that fits, all read between two drawings. Cells of a row: by tabs."""
        found: list[str] = self.script(SHOWN_TEXTS, selector)
        return found

    def count(self, selector: str) -> int:
        """How many elements fit."""
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def click_text(self, text: str) -> None:
        """Click the first button that is shown with just this text, once there is one."""
        shown = "(b) => b.checkVisibility() && b.innerText === arguments[0]"
        find = f"return [...document.querySelectorAll('button')].find({shown})"
        self.until(lambda: self.script(find, text) is not None)
        self.script(f"{find}.click()".removeprefix("return "), text)

    def type_into(self, element_id: str, text: str) -> None:
        self.driver.find_element(By.ID, element_id).send_keys(text)

    def press(self, selector: str, keys: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(keys)

    def script(self, source: str, *arguments: object) -> Any:
        """What the function body `source` returns in the page."""
        return self.driver.execute_script(source, *arguments)

    def complaints(self) -> list[dict[str, object]]:
        """What the browser's console says: errors of scripts, refusals of the page's policy."""
        return list(self.driver.get_log("browser"))  # type: ignore[no-untyped-call]

    def _tell(self, command: str, values: dict[str, object]) -> None:
        self.driver.execute_cdp_cmd(command, values)


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[BrowserPage]:
    """A started browser with an empty profile, ended after its use."""
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver_program:
        message = "no chromium and chromedriver on the PATH: on Debian, apt-get install chromium chromium-driver"
        if os.environ.get("PYGGML_TEST_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    try:
        yield BrowserPage(driver)
    finally:
        driver.quit()
