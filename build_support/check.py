"""Applies the series on the pinned base, and builds it patch by patch on request. The tree itself stays as it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from build_support.build_error import BuildError
from build_support.cmake_build import build_environment, run_cmake
from build_support.export import format_commits
from build_support.git import git, git_output
from build_support.layout import Layout
from build_support.lint import problems
from build_support.series import series_files
from build_support.tools import Tools, find_tools
from build_support.tree import BASE, Say, apply_beside, apply_series, ensure_tree

WARNINGS = "-Wall -Wextra -Werror=missing-field-initializers"


def check_lint(layout: Layout) -> None:
    found = problems(layout.patches)
    if found:
        raise BuildError("the patch series has problems:\n    " + "\n    ".join(found), "see patches/README.md")


def check_applies(layout: Layout, say: Say) -> str:
    """Applies all patches in order beside the tree; also refuses a tree that export would write differently."""
    tree = ensure_tree(layout, say)
    head = apply_beside(layout, series_files(layout.patches), say)
    if git_output(tree, "rev-parse", "HEAD") == head:
        for name, text in format_commits(tree):
            if (layout.patches / name).read_bytes() != text:
                raise BuildError(f"patches/{name} is not what export writes", "run scripts/patches export")
    return head


def check_builds(layout: Layout, say: Say) -> None:
    """Builds the libraries and the tests after each patch, in a folder of its own. Minutes for each patch."""
    tools, env = find_tools(os.environ), build_environment(layout, os.environ)
    beside = layout.vendor / "checking" / "llama.cpp"
    try:
        git_output(ensure_tree(layout, say), "worktree", "add", "--quiet", "--force", "--detach", str(beside), BASE)
        for path in series_files(layout.patches):
            apply_series(beside, [path], say)
            _build(layout, tools, env, beside)
    finally:
        shutil.rmtree(beside.parent, ignore_errors=True)
        git(layout.tree, "worktree", "prune")


def _build(layout: Layout, tools: Tools, env: dict[str, str], tree: Path) -> None:
    folder = layout.build / "patch-check"
    command = [tools.cmake, "-S", str(tree), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_OPENSSL=OFF"]
    command += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"] if tools.ninja else []
    if tools.ccache:
        command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    command += ["-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF"]
    command += [f"-DCMAKE_C_FLAGS={WARNINGS}", f"-DCMAKE_CXX_FLAGS={WARNINGS}"]
    run_cmake(command, env, "configure")
    targets = ["llama", *new_tests(tree)]
    run_cmake([tools.cmake, "--build", str(folder), "--parallel", "--target", *targets], env, "build")


def new_tests(tree: Path) -> list[str]:
    """The test programs that the patches so far added."""
    added = git_output(tree, "diff", "--name-only", "--diff-filter=A", f"{BASE}..HEAD", "--", "tests/test-*.cpp")
    return [Path(name).stem for name in added.split()]
