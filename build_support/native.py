"""From a clone to shared libraries: the one call that setup.py and scripts make. Blocks; prints what it does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.cmake_build import (
    REFERENCE_TARGET,
    ROUTER_TARGET,
    SHIM_TARGET,
    CMakeBuild,
    build_libraries,
    how_long,
    n_jobs,
    user_options,
)
from build_support.layout import Layout
from build_support.own_tree import VARIABLE, own_tree
from build_support.page import ensure_page, put_page
from build_support.pin import read_pin
from build_support.portable import VARIABLE as PORTABLE
from build_support.portable import portable_options
from build_support.tools import find_tools
from build_support.tree import ensure_tree

WITH_REFERENCE = "PYGGML_WITH_LLAMA_SERVER"


@dataclass(frozen=True)
class NativeBuild:
    """What a finished build left: the tree it was made of, the libraries to put next to the module, and the chat page
    (None: it could not be built)."""

    tree: Path
    libraries: list[Path]
    page: Path | None


def say(line: str) -> None:
    print(f"pyggml: {line}", flush=True)


def build_native(layout: Layout, env: Mapping[str, str] = os.environ) -> NativeBuild:
    """Missing programs are reported before anything is fetched."""
    tools = find_tools(env)
    tree = source_tree(layout, env)
    folder = layout.build / ("cmake" if tree == layout.tree else "cmake-own-tree")
    portable = portable_options(env)
    if portable:
        folder = folder.with_name(f"{folder.name}-{env[PORTABLE]}")
    targets = [SHIM_TARGET, ROUTER_TARGET] + ([REFERENCE_TARGET] if env.get(WITH_REFERENCE) == "1" else [])
    build = CMakeBuild(layout, tree, folder, read_pin(layout.pin_file), tools, (*portable, *user_options(env)))
    say(how_long(build, n_jobs(env)))
    with ThreadPoolExecutor(1, "page") as thread:  # npm waits for its registry while the compiler works
        page = thread.submit(ensure_page, layout, tree, say, env)
        libraries = build_libraries(build, env, targets)
    return NativeBuild(tree, libraries, page.result())


def build_page_alone(layout: Layout, env: Mapping[str, str] = os.environ) -> None:
    """The chat page without anything native, in its place in this clone. Raises BuildError where it cannot be built."""
    page = ensure_page(layout, source_tree(layout, env), say, env)
    if page is None:
        raise BuildError("there is no chat page", "the line above says why")
    say(f"chat page: {put_page(page, layout.root / 'server')}")


def source_tree(layout: Layout, env: Mapping[str, str]) -> Path:
    """The tree to build from: the user's own, if PYGGML_LLAMA_DIR names one, else that of the pin, made if need be."""
    own = own_tree(env, layout.patches)
    if own is None:
        return ensure_tree(layout, say)
    say(f"building from {VARIABLE}={own}, as it is: the pin and the series are not used")
    return own
