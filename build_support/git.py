"""Runs git so that the same input gives the same commits on every machine. Knows nothing of patches or pins.

The user's own configuration is out of the picture: no identity is needed, no hook or signing key is used.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from build_support.build_error import BuildError

# The committer of everything in the tree, and the author of its base commit. Fixed, so that commit ids are too.
NAME = "pyggml"
EMAIL = "pyggml@localhost"
DATE = "2025-01-01T00:00:00+00:00"

SETTINGS = ("core.autocrlf=false", "core.fileMode=true", "commit.gpgsign=false", "gc.auto=0", "am.threeWay=false")


def git_environment() -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1", GIT_TERMINAL_PROMPT="0", LC_ALL="C")
    env.update(GIT_COMMITTER_NAME=NAME, GIT_COMMITTER_EMAIL=EMAIL, GIT_COMMITTER_DATE=DATE)
    return env


def git(folder: Path, *arguments: str, author: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs git in `folder` and returns what it did, whatever its exit code. Blocks.

    `author` also fixes the author, for commits that have none of their own.
    """
    env = git_environment()
    if author:
        env.update(GIT_AUTHOR_NAME=NAME, GIT_AUTHOR_EMAIL=EMAIL, GIT_AUTHOR_DATE=DATE)
    settings = [part for setting in (*SETTINGS, f"safe.directory={folder}") for part in ("-c", setting)]
    command = ["git", *settings, *arguments]
    try:
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, encoding="utf-8", check=False)
    except FileNotFoundError as error:
        remedy = "install git (Debian and Ubuntu: apt install git); the patches are applied with it"
        raise BuildError(f"git is not on PATH ({env.get('PATH', '')})", remedy) from error


def git_output(folder: Path, *arguments: str, author: bool = False) -> str:
    """What git printed, stripped. Raises RuntimeError with git's own words when it failed."""
    done = git(folder, *arguments, author=author)
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(arguments)} in {folder}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()
