"""Builds a tree after each patch, on what its group needs, with upstream's warnings, and runs the tests it brought.

On the CPU and on simdev, if its sources are there. Has a folder of its own for objects, which stays, so that the
next check builds what changed. Must not touch the tree of the build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.cmake_build import build_environment, run_cmake
from build_support.git import git, git_output
from build_support.groups import groups_of
from build_support.layout import Layout
from build_support.patch_programs import MODEL_WRITER, Programs, programs_since, take_models
from build_support.progress import Say
from build_support.series import read_patches
from build_support.tools import Tools, find_tools, require_compiler
from build_support.tree import BASE, apply_series, ensure_tree

#: -O0: the programs run for seconds, and are compiled anew for each patch that changes a header.
FLAGS = "-O0 -Wall -Wextra -Werror=missing-field-initializers"
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=None",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
)


@dataclass(frozen=True)
class PatchBuild:
    """A tree with patches on it, and the folder for its objects and programs."""

    layout: Layout
    tree: Path
    folder: Path
    tools: Tools

    def build(self, programs: list[str]) -> None:
        """Blocks for minutes. Raises BuildError when something does not compile."""
        writer = [MODEL_WRITER] if take_models(programs) else []
        linked = []
        if self._has_simdev:  # some programs load no backend by themselves
            linked = [f"-DCMAKE_EXE_LINKER_FLAGS={self._compile_loader()}"]
        self._cmake(self.tree, self.folder, [*OPTIONS, *linked, *self._flags()], ["llama", *writer, *programs])
        if self._has_simdev:
            options = [f"-DPYGGML_TREE={self.tree}", f"-DPYGGML_LIBRARIES={self.folder / 'bin'}"]
            simdev_sources = self.layout.root / "tests" / "native"
            self._cmake(simdev_sources, self.folder / "simdev", [*options, "-DPYGGML_PREFIX=lib"], ["ggml-simdev"])

    def run(self, names: list[str], say: Say) -> None:
        """Blocks. Raises BuildError at the first program that does not end well."""
        programs = Programs(self.folder / "bin", self.folder / "models")
        if take_models(names):
            programs.write_models()
        for name in names:
            programs.run(name, None)
            if self._has_simdev:
                programs.run(name, self.folder / "simdev" / "libggml-simdev.so")
            say(f"test: {name} ok on cpu{' and simdev' if self._has_simdev else ''}")

    @property
    def _has_simdev(self) -> bool:
        return (self.layout.root / "tests" / "native" / "CMakeLists.txt").is_file()

    def _compile_loader(self) -> Path:
        source, compiled = self.layout.root / "tests/upstream/load_backends.cpp", self.folder / "load_backends.o"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [require_compiler(os.environ), "-fPIC", "-c", str(source), "-o", str(compiled)]
        subprocess.run(command, check=True)
        return compiled

    def _flags(self) -> list[str]:
        return [f"-DCMAKE_{language}_FLAGS={FLAGS}" for language in ("C", "CXX")]

    def _cmake(self, sources: Path, folder: Path, options: list[str], targets: list[str]) -> None:
        env = build_environment(self.layout, os.environ)
        command = [self.tools.cmake, "-S", str(sources), "-B", str(folder), *options]
        if self.tools.ninja:
            command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={self.tools.ninja}"]
        if self.tools.ccache:
            command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        run_cmake(command, env, "configure")
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        run_cmake([self.tools.cmake, "--build", str(folder), "--parallel", jobs, "--target", *targets], env, "build")


def patch_build(layout: Layout, tree: Path, name: str) -> PatchBuild:
    """In build/`name`, with models written anew: those of another llama.cpp may not fit."""
    folder = layout.build / name
    shutil.rmtree(folder / "models", ignore_errors=True)
    return PatchBuild(layout, tree, folder, find_tools(os.environ))


def check_builds(layout: Layout, say: Say, n_first: int | None = None) -> None:
    """Each group on what it needs: after each patch (of the first `n_first`) the library and the tests it brings."""
    patches = read_patches(layout.patches)
    if n_first is not None and not 0 < n_first <= len(patches):
        raise BuildError(f"--first {n_first}: the series has {len(patches)} patches", "name a number from 1 to that")
    chosen = {patch.name for patch in patches[:n_first]}
    second = layout.vendor / "checking" / "llama.cpp"
    build = patch_build(layout, second, "patch-check")
    try:
        git_output(ensure_tree(layout, say), "worktree", "add", "--quiet", "--force", "--detach", str(second), BASE)
        for group in groups_of(patches):
            git_output(second, "checkout", "--quiet", "--detach", BASE)
            apply_series(second, [layout.patches / patch.name for patch in group.below], lambda _line: None)
            for patch in group.patches:
                if patch.name in chosen:
                    apply_series(second, [layout.patches / patch.name], say)
                    _build_and_run(build, programs_since(second, "HEAD~"), say)
    finally:
        shutil.rmtree(second.parent, ignore_errors=True)
        git(layout.tree, "worktree", "prune")


def _build_and_run(build: PatchBuild, programs: list[str], say: Say) -> None:
    build.build(programs)
    build.run(programs, say)
