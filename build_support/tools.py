"""Finds the programs that the build needs, and says how to get one that is missing. Starts nothing but `--version`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from build_support.build_error import BuildError

CMAKE_MINIMUM = (3, 18)
# pip puts the build requirements of an isolated build into a folder with this in its name, and removes it afterwards.
PIP_TEMPORARY = "pip-build-env-"


@dataclass(frozen=True)
class Tools:
    """Absolute paths; `ninja` and `ccache` are None where the machine has none."""

    cmake: str
    ninja: str | None
    ccache: str | None


def find_all(name: str, env: Mapping[str, str]) -> list[str]:
    """Each such program on PATH. Those that outlive this build come before pip's temporary ones: CMake's cache
    remembers paths."""
    folders = env.get("PATH", "").split(os.pathsep)
    folders.sort(key=lambda folder: PIP_TEMPORARY in folder)
    found = (shutil.which(name, path=folder) for folder in folders if folder)
    return [path for path in found if path is not None]


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    return next(iter(find_all(name, env)), None)


def require_compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler that CMake will pick: $CXX, else the first of c++, g++, clang++."""
    wanted = env.get("CXX")
    for name in [wanted.split()[-1]] if wanted else ["c++", "g++", "clang++"]:
        found = find_program(name, env)
        if found is not None:
            return found
    what = f"CXX={wanted} is not on PATH" if wanted else "no C++ compiler: none of c++, g++, clang++ is on PATH"
    raise BuildError(what, "install one (Debian and Ubuntu: apt install g++), or set CXX to its path")


def cmake_version(cmake: str) -> tuple[int, int]:
    said = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)", said)
    if match is None:
        raise BuildError(f"{cmake} --version says {said.strip()!r}", "pip install cmake")
    return int(match[1]), int(match[2])


def require_cmake(env: Mapping[str, str]) -> str:
    """The first CMake on PATH that is new enough."""
    found = find_all("cmake", env)
    if not found:
        remedy = "pip install cmake, or install it with the system's package manager"
        raise BuildError(f"cmake is not on PATH ({env.get('PATH', '')})", remedy)
    for cmake in found:
        if cmake_version(cmake) >= CMAKE_MINIMUM:
            return cmake
    has, needs = (".".join(map(str, version)) for version in (cmake_version(found[0]), CMAKE_MINIMUM))
    raise BuildError(f"{found[0]} is version {has}, at least {needs} is needed", "pip install --upgrade cmake")


def find_tools(env: Mapping[str, str]) -> Tools:
    """Raises BuildError for a missing compiler, a missing CMake and a CMake that is too old."""
    require_compiler(env)
    return Tools(cmake=require_cmake(env), ninja=find_program("ninja", env), ccache=find_program("ccache", env))
