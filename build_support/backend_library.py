"""One backend as a loadable library, for a plug-in package. Blocks for minutes; shows ninja's progress."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from build_support.build_error import BuildError
from build_support.cmake_build import CMakeBuild, build_targets, user_options
from build_support.layout import Layout, of_this_clone
from build_support.native import say, source_tree
from build_support.pin import read_pin
from build_support.tools import find_tools


def build_backend(name: str, layout: Layout | None = None, env: Mapping[str, str] = os.environ) -> Path:
    """Builds ggml's backend `name` ("cuda", "vulkan") from the patched tree; returns the library.

    Raises BuildError if a tool is missing or the build fails.
    """
    layout = layout or of_this_clone()
    options = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", f"-DGGML_{name.upper()}=ON", *user_options(env))
    folder = layout.build / f"cmake-{name}"
    build = CMakeBuild(layout, source_tree(layout, env), folder, read_pin(layout.pin_file), find_tools(env), options)
    say(f"the {name} backend takes 10 to 60 minutes the first time")
    build_targets(build, env, [f"ggml-{name}"])
    library = build.bin / f"libggml-{name}.so"
    if not library.is_file():
        raise BuildError(f"the build left no {library}", "look at the messages above")
    return library
