"""Finds the programs that the build needs, and says how to get one that is missing. Starts nothing but `--version`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from build_support.failure import BuildFailure

CMAKE_MINIMUM = (3, 18)
# pip puts the build requirements of an isolated build into a folder with this in its name, and removes it afterwards.
PIP_TEMPORARY = "pip-build-env-"


@dataclass(frozen=True)
class Tools:
    """Absolute paths; `ninja` and `ccache` are None where the machine has none."""

    cmake: str
    ninja: str | None
    ccache: str | None


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """The program on PATH. One that outlives this build wins over pip's temporary one: CMake caches remember paths."""
    folders = env.get("PATH", "").split(os.pathsep)
    lasting = os.pathsep.join(folder for folder in folders if PIP_TEMPORARY not in folder)
    return shutil.which(name, path=lasting) or shutil.which(name, path=os.pathsep.join(folders))


def require_program(name: str, env: Mapping[str, str], remedy: str) -> str:
    found = find_program(name, env)
    if found is None:
        raise BuildFailure(f"{name} is not on PATH ({env.get('PATH', '')})", remedy)
    return found


def require_compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler that CMake will pick: $CXX, else the first of c++, g++, clang++."""
    wanted = env.get("CXX")
    for name in [wanted.split()[-1]] if wanted else ["c++", "g++", "clang++"]:
        found = find_program(name, env)
        if found is not None:
            return found
    what = f"CXX={wanted} is not on PATH" if wanted else "no C++ compiler: none of c++, g++, clang++ is on PATH"
    raise BuildFailure(what, "install one (Debian and Ubuntu: apt install g++), or set CXX to its path")


def cmake_version(cmake: str) -> tuple[int, int]:
    said = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)", said)
    if match is None:
        raise BuildFailure(f"{cmake} --version says {said.strip()!r}", "pip install cmake")
    return int(match[1]), int(match[2])


def find_tools(env: Mapping[str, str]) -> Tools:
    """Raises BuildFailure for a missing compiler, a missing CMake and a CMake that is too old."""
    require_compiler(env)
    cmake = require_program("cmake", env, "pip install cmake, or install it with the system's package manager")
    version = cmake_version(cmake)
    if version < CMAKE_MINIMUM:
        has, needs = (".".join(map(str, v)) for v in (version, CMAKE_MINIMUM))
        raise BuildFailure(f"{cmake} is version {has}, at least {needs} is needed", "pip install --upgrade cmake")
    return Tools(cmake=cmake, ninja=find_program("ninja", env), ccache=find_program("ccache", env))
