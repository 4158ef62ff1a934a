"""openai for JavaScript, through Node: installed once from npm's registry, kept under build/."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.node import ensure_node
from tests.e2e.clients import is_missing

PACKAGE = "openai@6.49.0"


def javascript_command(program: Path) -> list[str | Path]:
    """What runs a program that imports the package."""
    try:
        node = ensure_node(of_this_clone().build / "node", os.environ)
    except BuildError as error:
        is_missing(str(error))
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
    # next to the package, where Node looks for it
    return [node.folder / "node", shutil.copy(program, folder)]
