"""docs/first-minutes.md is true: its commands are run as they stand there, on a look-alike of the hub, and print what
it says; the pages show what it says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import Command, console_commands
from tests.docs.documents import text_of
from tests.download.look_alike import Hub
from tests.e2e.program import FOREIGN_PREFIXES, PATIENCE_S, ServerProcess, free_port, our_program
from tests.web.browser import browser
from tests.web.chat_page import answer, ask, built_page

TEXT = text_of("docs/first-minutes.md")
PORT = "8080"
STAYS = "^C\n"  # at the end of what a server prints that runs on
REPOSITORY = "bartowski/SmolLM2-135M-Instruct-GGUF"
FILE = "SmolLM2-135M-Instruct-Q4_K_M.gguf"


@pytest.fixture
def environment(hub: Hub, authority_file: Path, smollm2_path: Path, tmp_path: Path) -> dict[str, str]:
    hub.repositories[REPOSITORY] = {FILE: smollm2_path.read_bytes()}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)},
        "HF_ENDPOINT": hub.site.url,
        "SSL_CERT_FILE": str(authority_file),
        "LLAMA_CACHE": str(tmp_path / "cache"),
        "NO_PROXY": "localhost,127.0.0.1",
        "PATH": f"{our_program().parent}:{os.environ['PATH']}",
    }


@pytest.fixture
def terminal(environment: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal(environment, tmp_path)
    yield started
    started.end_server()


class Terminal:
    """Runs the commands of the document one after the other, on a port that is free. A server stays until the next one
    is started."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.port = str(free_port())
        self.server: ServerProcess | None = None
        self._environment = environment
        self._folder = folder

    def run(self, command: Command) -> str:
        """What it prints, with the document's port."""
        typed = command.typed.replace(PORT, self.port)
        if not command.printed.endswith(STAYS):
            return self._run(typed)
        self.end_server()
        self.server = ServerProcess(["bash", "-c", f"exec {typed.strip()} --port {self.port}"], self._environment)
        self.server.wait_until_ready()
        return self.server.whole_log().replace(self.port, PORT) + STAYS

    def end_server(self) -> None:
        if self.server is not None:
            self.server.end()

    def _run(self, typed: str) -> str:
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout.replace(self.port, PORT)


def test_the_commands_print_what_the_document_says(terminal: Terminal, hub: Hub) -> None:
    for command in console_commands(TEXT):
        printed = terminal.run(command)
        assert command.prints(printed), f"$ {command.typed}{printed}"
    assert [path for path in hub.files.paths("GET") if path.endswith(FILE)] != []


def test_the_page_chats_and_leads_to_the_pool_as_the_document_says(terminal: Terminal, tmp_path: Path) -> None:
    built_page()
    terminal.run(console_commands(TEXT)[0])
    assert terminal.server is not None
    with browser(tmp_path / "profile") as page:
        page.open(terminal.server.url)
        ask(page, "Hi")
        page.until(lambda: answer(page))
        page.click("[aria-label='KV pool']")
        page.driver.switch_to.window(page.driver.window_handles[-1])
        page.until_text("status", "Live")
        page.until(lambda: page.texts("#cells .held, #cells .kept"))
