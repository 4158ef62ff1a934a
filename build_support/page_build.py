"""Builds the chat page with npm, in a copy of llama.cpp's tools/ui: the tree stays as it is. Blocks for minutes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from build_support.build_error import BuildError
from build_support.layout import Layout
from build_support.node import Node, ensure_node
from build_support.page_files import pack_page
from build_support.pin import read_pin
from build_support.progress import Say

CONFIG = "page.vite.config.ts"
NOTICES = "THIRD-PARTY-NOTICES.txt"
LEFT_BEHIND = {"node_modules", "dist", ".svelte-kit"}
# what upstream does: `npm ci`, and `npm run build` in its two steps, the second with our configuration around its own
STEPS = (
    ("ci", "--no-audit", "--no-fund"),
    ("run", "build-pwa-assets"),
    ("exec", "--", "vite", "build", "--config", CONFIG),
)
N_SHOWN_LINES = 6


def build_page(layout: Layout, tree: Path, folder: Path, say: Say, env: Mapping[str, str]) -> Path:
    """Builds in `folder`, which is empty; returns the packed page in it. Raises BuildError."""
    work, dist, notices = folder / "ui", folder / "dist", folder / NOTICES
    node = ensure_node(layout.build / "node", env)
    shutil.copytree(tree / "tools" / "ui", work, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    shutil.copy2(Path(__file__).with_name(CONFIG), work)
    own = {"LLAMA_UI_OUT_DIR": str(dist), "PYGGML_NOTICES": str(notices)}
    own["LLAMA_BUILD_NUMBER"] = str(read_pin(layout.pin_file).upstream_build_number)
    for arguments in STEPS:
        say(f"chat page: npm {' '.join(arguments)}")
        _npm(node, arguments, work, node.environment({**env, **own}))
    _add_notices(tree, notices, dist)
    pack_page(dist, folder / "packed")
    return folder / "packed"


def _npm(node: Node, arguments: tuple[str, ...], folder: Path, env: Mapping[str, str]) -> None:
    """Raises BuildError with the end of what npm said."""
    done = subprocess.run(
        [*node.npm, *arguments],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = " / ".join(line.strip() for line in done.stdout.strip().splitlines()[-N_SHOWN_LINES:])
        raise BuildError(f"npm {' '.join(arguments)} failed: {last}", "check npm's registry and proxy settings")


def _add_notices(tree: Path, notices: Path, dist: Path) -> None:
    upstream = (tree / "LICENSE").read_text(encoding="utf-8").strip()
    head = (
        "This page is the user interface of llama.cpp, with changes. It contains the following works.\n\nllama.cpp\n\n"
    )
    line = "\n\n" + "-" * 80 + "\n\n"
    (dist / NOTICES).write_text(head + upstream + line + notices.read_text(encoding="utf-8"), encoding="utf-8")
