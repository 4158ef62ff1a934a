"""Configures and builds the shared libraries with CMake. Blocks for minutes the first time; shows ninja's progress.

Everything is built in one folder per tree, build/cmake, so that the next build does only what changed. Nothing is
taken from there unless CMake finished without an error.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.layout import Layout
from build_support.pin import Pin
from build_support.tools import Tools

SHIM_TARGET = "pyggml-shim"
ROUTER_TARGET = "pyggml-router"
REFERENCE_TARGET = "llama-server"
SUFFIXES = {".so", ".dylib"}
#: What compiling everything takes one core of a server, without ccache: for one machine, and with every CPU variant.
CPU_MINUTES, CPU_MINUTES_ALL_VARIANTS = 30, 46


@dataclass(frozen=True)
class CMakeBuild:
    """One configured folder: the sources, where objects go, the user's -D options, and the programs to use."""

    layout: Layout
    tree: Path
    folder: Path
    pin: Pin
    tools: Tools
    options: tuple[str, ...]

    @property
    def bin(self) -> Path:
        return self.folder / "bin"


def user_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """CMAKE_ARGS, split as a shell would."""
    return tuple(shlex.split(env.get("CMAKE_ARGS", "")))


def configure_command(build: CMakeBuild) -> list[str]:
    command = [build.tools.cmake, "-S", str(build.layout.native), "-B", str(build.folder)]
    if build.tools.ninja is not None:
        # Named each time: the cache may remember a ninja in a temporary folder of pip's.
        command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={build.tools.ninja}"]
    command += [f"-DPYGGML_TREE={build.tree}", "-DCMAKE_BUILD_TYPE=Release"]
    command += [f"-DLLAMA_BUILD_COMMIT={build.pin.upstream_commit}"]
    command += [f"-DLLAMA_BUILD_NUMBER={build.pin.upstream_build_number}"]
    if build.tools.ccache is not None:
        command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX", "CUDA")]
    return [*command, *build.options]


def build_environment(layout: Layout, env: Mapping[str, str]) -> dict[str, str]:
    """What ninja and ccache see. Paths are hashed relative to the clone, so that another clone hits the same cache."""
    chosen = {"CCACHE_BASEDIR": str(layout.root), "CCACHE_NOHASHDIR": "1"}
    return {**chosen, **env, "NINJA_STATUS": env.get("NINJA_STATUS", "[%f/%t, %e s] ")}


def forget_other_options(build: CMakeBuild) -> None:
    """Drops CMake's cache when the options changed: CMake would keep an option that is no longer given."""
    note, wanted = build.folder / "pyggml-options.txt", "\n".join(build.options)
    if note.exists() and note.read_text(encoding="utf-8") != wanted:
        (build.folder / "CMakeCache.txt").unlink(missing_ok=True)
    build.folder.mkdir(parents=True, exist_ok=True)
    note.write_text(wanted, encoding="utf-8")


def how_long(build: CMakeBuild, n_cores: int) -> str:
    """A sentence for people, before anything is compiled."""
    if (build.folder / "CMakeCache.txt").exists():
        return "compiling what changed since the last build"
    minutes = CPU_MINUTES_ALL_VARIANTS if "-DGGML_CPU_ALL_VARIANTS=ON" in build.options else CPU_MINUTES
    return (
        f"the first build compiles llama.cpp: about {math.ceil(minutes / n_cores)} minutes (cores: {n_cores}); "
        "later builds compile only what changed"
    )


def run_cmake(command: list[str], env: Mapping[str, str], what: str) -> None:
    """Output goes straight to ours, line by line. Raises BuildError when the command fails."""
    print(f"{what}: {shlex.join(command)}", flush=True)
    code = subprocess.run(command, env=dict(env), check=False).returncode
    if code != 0:
        raise BuildError(
            f"{what} failed (exit code {code}); the compiler's message is above",
            "fix what it names and run the same command again: finished objects are kept (pip hides output without -v)",
        )


def build_libraries(build: CMakeBuild, env: Mapping[str, str], targets: list[str]) -> list[Path]:
    """Builds `targets` and returns what the compiled module and the router need next to them, the router included."""
    build_targets(build, env, targets)
    return [*shared_libraries(build.bin), build.bin / ROUTER_TARGET]


def build_targets(build: CMakeBuild, env: Mapping[str, str], targets: list[str]) -> None:
    """Configures if need be and builds `targets`. Blocks. Raises BuildError."""
    env = build_environment(build.layout, env)
    forget_other_options(build)
    run_cmake(configure_command(build), env, "configure")
    command = [build.tools.cmake, "--build", str(build.folder), "--parallel", str(n_jobs(env)), "--target", *targets]
    run_cmake(command, env, "build")


def n_jobs(env: Mapping[str, str]) -> int:
    return int(env.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count() or 1)


def shared_libraries(folder: Path) -> list[Path]:
    """The libraries of the set and the loadable backends."""
    all_files = (path for pattern in ("libpyggml-*", "libggml-*") for path in folder.glob(pattern))
    return sorted(path for path in all_files if path.suffix in SUFFIXES and not path.is_symlink())
