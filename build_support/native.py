"""From a clone to shared libraries: the one call that setup.py and scripts make. Blocks; prints what it does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from build_support.cmake_build import REFERENCE_TARGET, SHIM_TARGET, CMakeBuild, build_libraries, user_options
from build_support.layout import Layout
from build_support.own_tree import VARIABLE, own_tree
from build_support.pin import read_pin
from build_support.tools import find_tools
from build_support.tree import ensure_tree

WITH_REFERENCE = "PYGGML_WITH_LLAMA_SERVER"


@dataclass(frozen=True)
class NativeBuild:
    """What a finished build left: the tree it was made of, and the libraries to put beside the module."""

    tree: Path
    libraries: list[Path]


def say(line: str) -> None:
    print(f"pyggml: {line}", flush=True)


def build_native(layout: Layout, env: Mapping[str, str] = os.environ) -> NativeBuild:
    """Missing programs are reported before anything is fetched."""
    tools = find_tools(env)
    tree, folder = own_tree(env, layout.patches), layout.build / "cmake-own-tree"
    if tree is not None:
        say(f"building from {VARIABLE}={tree}, as it is: the pin and the series are not used")
    else:
        tree, folder = ensure_tree(layout, say), layout.build / "cmake"
    targets = [SHIM_TARGET] + ([REFERENCE_TARGET] if env.get(WITH_REFERENCE) == "1" else [])
    build = CMakeBuild(layout, tree, folder, read_pin(layout.pin_file), tools, user_options(env))
    return NativeBuild(tree, build_libraries(build, env, targets))
