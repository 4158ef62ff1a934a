"""The Python in the documents and in the bindings' docstring compiles, and what needs only a model also runs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, python_blocks, text_of

SERVER_BLOCKS = python_blocks(text_of("README.md"))
BINDINGS_BLOCKS = python_blocks(text_of("docs/reference.md"))


def docstring_example() -> str:
    """The indented block of `pyggml.__doc__`, read without an import: that would need the compiled module."""
    doc = ast.get_docstring(ast.parse(text_of("pyggml/__init__.py")))
    assert doc is not None
    lines = doc.splitlines()
    return textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))


def run(program: str, folder: Path) -> str:
    """Runs it as a file in `folder`, warnings being errors; returns what it printed."""
    (folder / "example.py").write_text(program, encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(ROOT / "server")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder_with_model(tmp_path: Path, smollm2_path: Path) -> Path:
    """A folder with a `model.gguf`, as the examples call it."""
    (tmp_path / "model.gguf").symlink_to(smollm2_path.resolve())
    return tmp_path


def test_there_is_a_block_for_the_server_and_one_for_the_bindings() -> None:
    first_lines = [block.splitlines()[0] for block in (*SERVER_BLOCKS, *BINDINGS_BLOCKS)]
    assert first_lines == ["from openai import OpenAI", "from pyggml import Batch, Context, ContextParams, Model"]


@pytest.mark.parametrize("block", [*SERVER_BLOCKS, *BINDINGS_BLOCKS], ids=lambda block: block.split()[1])
def test_the_blocks_of_the_documents_compile(block: str) -> None:
    compile(block, "document", "exec")


def test_the_bindings_example_restores_a_sequence_that_goes_on_with_the_same_tokens(folder_with_model: Path) -> None:
    said = run(BINDINGS_BLOCKS[0], folder_with_model)
    assert said.splitlines()[-1] == "equal: True"


def test_the_example_in_the_docstring_runs(folder_with_model: Path) -> None:
    program = f"from pyggml import *\ntokens = [1, 2, 3]\n{docstring_example()}\nprint('done')\n"
    assert run(program, folder_with_model) == "done\n"
