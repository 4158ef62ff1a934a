"""langchain-openai, litellm, llm and openai for JavaScript work unchanged, and meet the errors that they meet with
llama-server: a wrong key, a prompt that is too long, a model that still loads. So do openai-python and anthropic."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.client_environments import CLIENTS, environment, python_with
from tests.e2e.clients import CITIES, GREETING, HELLO, KEY, OPENING, QUESTION, TOO_LONG, WEATHER
from tests.e2e.javascript import javascript_command
from tests.e2e.program import PATIENCE_S, ServerProcess

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("client_programs")
HEAVY = ("langchain", "litellm", "llm")
Command = Sequence[str | Path]


@pytest.fixture(scope="session")
def command_of() -> Callable[[str], Command]:
    """What runs a client's program."""

    def command(client: str) -> Command:
        if client == "javascript":
            return javascript_command(PROGRAMS / "javascript_client.mjs")
        python = python_with(CLIENTS) if client in HEAVY else Path(sys.executable)
        return [python, PROGRAMS / f"{client}_client.py"]

    return command


def said(command: Command, mode: str, server: ServerProcess, loading: ServerProcess, home: Path) -> dict[str, object]:
    """What a client's program prints."""
    told = {
        "URL": server.url + "/v1",
        "LOADING_URL": loading.url + "/v1",
        "KEY": KEY,
        "HELLO": HELLO,
        "QUESTION": QUESTION,
        "OPENING": OPENING,
        "WEATHER": json.dumps(WEATHER),
        "TOO_LONG": TOO_LONG,
    }
    done = subprocess.run(
        [*command, mode],
        env=environment(told, home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return printed


@pytest.mark.parametrize("client", [*HEAVY, "javascript"])
def test_a_client_works_unchanged(
    client: str,
    command_of: Callable[[str], Command],
    keyed: ServerProcess,
    loading: ServerProcess,
    tmp_path: Path,
) -> None:
    got = said(command_of(client), "works", keyed, loading, tmp_path)
    assert got.pop("whole") == GREETING
    assert got.pop("stream") == GREETING
    assert got.pop("responses", GREETING) == GREETING
    assert got.pop("tools", None) == (None if client == "llm" else [{"city": city} for city in CITIES])
    assert got == {}


@pytest.mark.parametrize("client", [*HEAVY, "javascript", "openai", "anthropic"])
def test_a_client_meets_the_same_errors_as_with_llama_server(
    client: str,
    command_of: Callable[[str], Command],
    keyed: ServerProcess,
    keyed_stock: ServerProcess,
    loading: ServerProcess,
    loading_stock: ServerProcess,
    tmp_path: Path,
) -> None:
    ours = said(command_of(client), "mistakes", keyed, loading, tmp_path)
    stock = said(command_of(client), "mistakes", keyed_stock, loading_stock, tmp_path)
    assert without_ports(ours) == without_ports(stock)
    assert "Invalid API Key" in str(ours["wrong key"])
    assert "exceeds the available context size (512 tokens)" in str(ours["too long"])
    assert "Loading model" in str(ours["loading"])


def without_ports(said: dict[str, object]) -> str:
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", json.dumps(said, indent=1, sort_keys=True))
