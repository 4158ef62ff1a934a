"""Builds simdev and its test programs into build/native-tests, against the tree and the libraries of the build."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from build_support.layout import Layout, of_this_clone
from build_support.tools import find_tools

LIMIT_S = 300
OLD_HEADERS = ("ggml/include", "ggml/src/ggml-impl.h", "ggml/src/ggml-backend-impl.h")


def run(command: list[str | Path], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command with simdev's variables from `env` only. Output is captured, whatever bytes are in it; a command
    that hangs is an error."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SIMDEV_", "GGML_BACKEND_"))}
    return subprocess.run(
        command,
        env=clean | dict(env or {}),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=LIMIT_S,
    )


def must(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@dataclass(frozen=True)
class NativeTests:
    """The folder with the programs and both libraries, and the backend API of the tree and of the tree unpatched."""

    folder: Path
    api_version: int
    old_api_version: int

    @property
    def simdev(self) -> Path:
        return self.folder / "libggml-simdev.so"

    @property
    def old_simdev(self) -> Path:
        """The same sources against the headers of the unpatched tree; only where those have another API version."""
        return self.folder / "libggml-simdev-old.so"

    def run_case(
        self, program: str, case: str, env: Mapping[str, str] | None = None, library: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        chosen = {"GGML_BACKEND_PATH": str(library or self.simdev), **(env or {})}
        return run([self.folder / program, case], chosen)


def api_version(headers: Path) -> int:
    text = (headers / "ggml/src/ggml-backend-impl.h").read_text(encoding="utf-8")
    found = re.search(r"#define GGML_BACKEND_API_VERSION (\d+)", text)
    assert found is not None, f"{headers} defines no GGML_BACKEND_API_VERSION"
    return int(found[1])


def unpack_old_headers(layout: Layout, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "headers.tar"
    must(["git", "-C", layout.tree, "archive", "-o", archive, "base", *OLD_HEADERS])
    must(["tar", "-xf", archive, "-C", folder])


@pytest.fixture(scope="session")
def native_tests() -> NativeTests:
    from filelock import FileLock  # not on a GPU machine, where nothing is built

    layout = of_this_clone()
    folder = layout.build / "native-tests"
    with FileLock(folder.with_suffix(".lock")):  # pytest's other process builds the same
        return build(layout, folder)


def build(layout: Layout, folder: Path) -> NativeTests:
    """Builds what is out of date."""
    tools = find_tools(os.environ)
    old_headers = folder / "old-headers"
    unpack_old_headers(layout, old_headers)
    built = NativeTests(folder, api_version(layout.tree), api_version(old_headers))
    configure: list[str | Path] = [tools.cmake, "-S", Path(__file__).parent, "-B", folder]
    configure += [f"-DPYGGML_TREE={layout.tree}", f"-DPYGGML_LIBRARIES={layout.build / 'cmake' / 'bin'}"]
    configure += [f"-DPYGGML_OLD_HEADERS={old_headers if built.api_version != built.old_api_version else ''}"]
    if tools.ninja is not None:
        configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja}"]
    if tools.ccache is not None:
        configure += [f"-DCMAKE_CXX_COMPILER_LAUNCHER={tools.ccache}"]
    must(configure)
    must([tools.cmake, "--build", folder, "--parallel", str(os.cpu_count() or 1)])
    return built
