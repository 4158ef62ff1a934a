"""A coding agent (aider) edits a file of a repository and commits it, with our server as its model.

The model of the tests cannot write code. The server's own --grammar-file leaves it the words of one string and writes
the rest of an answer in aider's format `whole`; the agent, its requests and the tokens are as always.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.client_environments import CODING_AGENT, environment, python_with
from tests.e2e.clients import KEY
from tests.e2e.conftest import StartServer
from tests.e2e.program import PATIENCE_S

pytestmark = pytest.mark.slow

BEFORE = "def greet(name):\n    return name\n"
AFTER = re.compile(r'def greet\(name\):\n    return "[A-Za-z][A-Za-z ]{2,20}"\n')
GRAMMAR = r"""
root ::= "greet.py\n```\ndef greet(name):\n    return \"" [A-Za-z] [A-Za-z ]{2,20} "\"\n```\n"
"""
ASKED = ("--message", "Let it say something nice.", "greet.py")
OPTIONS = ("--edit-format", "whole", "--yes-always", "--map-tokens", "0", "--no-show-model-warnings")


def run(*command: str | Path, folder: Path, **told: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(told, folder.parent),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "greet.py").write_text(BEFORE, encoding="utf-8")
    run("git", "init", "--quiet", folder=folder)
    for name in ("name", "email"):
        run("git", "config", f"user.{name}", "nobody", folder=folder)
    run("git", "add", "greet.py", folder=folder)
    run("git", "commit", "--quiet", "--message", "Begin", folder=folder)
    return folder


@pytest.fixture
def agent() -> Path:
    return python_with(CODING_AGENT).with_name("aider")


def test_the_agent_edits_and_commits(agent: Path, repository: Path, start_ours: StartServer, tmp_path: Path) -> None:
    grammar = tmp_path / "edit.gbnf"
    grammar.write_text(GRAMMAR, encoding="utf-8")
    flags = ("-c", "4096", "-np", "1", "--temp", "0", "--api-key", KEY, "--grammar-file", str(grammar))
    with start_ours(*flags) as server:
        told = {"OPENAI_API_BASE": server.url + "/v1", "OPENAI_API_KEY": KEY}
        printed = run(agent, "--model", "openai/any", *OPTIONS, *ASKED, folder=repository, **told)
    assert "Applied edit to greet.py" in printed
    assert AFTER.fullmatch((repository / "greet.py").read_text(encoding="utf-8"))
    assert run("git", "diff", "HEAD~1", "--stat", folder=repository).startswith(" greet.py | 2 +-\n")
    assert "aider" in run("git", "log", "-1", "--format=%an %b", folder=repository)


def test_the_agent_says_that_its_key_is_wrong(agent: Path, repository: Path, start_ours: StartServer) -> None:
    with start_ours("-c", "4096", "-np", "1", "--api-key", KEY) as server:
        told = {"OPENAI_API_BASE": server.url + "/v1", "OPENAI_API_KEY": "wrong"}
        printed = run(agent, "--model", "openai/any", *OPTIONS, *ASKED, folder=repository, **told)
    assert "Invalid API Key" in " ".join(printed.split())  # in lines of its own
    assert (repository / "greet.py").read_text(encoding="utf-8") == BEFORE
