"""openai for JavaScript, through Node: a chat, a stream, tools, responses, and its errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.node import Node, ensure_node
from tests.e2e.clients import CITIES, GREETING, KEY, OPENING, QUESTION, WEATHER, is_missing
from tests.e2e.program import PATIENCE_S, ServerProcess

PACKAGE = "openai@6.49.0"
PROGRAM = Path(__file__).with_name("javascript_client.mjs")


@pytest.fixture(scope="module")
def node() -> Node:
    try:
        return ensure_node(of_this_clone().build / "node", os.environ)
    except BuildError as error:
        is_missing(str(error))


@pytest.fixture(scope="module")
def folder(node: Node) -> Path:
    """A folder with the package, kept for the next run."""
    folder = of_this_clone().build / "javascript-clients" / PACKAGE
    if not (folder / "node_modules").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        install = [*node.npm, "install", "--no-audit", "--no-fund", PACKAGE]
        done = subprocess.run(
            install, cwd=folder, env=node.environment(os.environ), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(folder)
            is_missing(f"npm could not install {PACKAGE}: {done.stderr[-300:]}")
    return folder


def test_openai_for_javascript_works_unchanged(keyed: ServerProcess, node: Node, folder: Path) -> None:
    program = shutil.copy(PROGRAM, folder)
    told = {"URL": keyed.url + "/v1", "KEY": KEY, "QUESTION": QUESTION, "OPENING": OPENING}
    done = subprocess.run(
        [node.folder / "node", program],
        env={**os.environ, **told, "WEATHER": json.dumps(WEATHER)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "mistakes": ["AuthenticationError 401", "BadRequestError 400"],
        "responses": GREETING,
        "stream": GREETING,
        "tools": [{"city": city} for city in CITIES],
        "whole": GREETING,
    }
