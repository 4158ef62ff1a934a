"""Backends come from the package's own folder and from plug-ins, never from the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARSER = "from pyggml_server.native.command_line import CommandLine"


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in `folder`, which is not on its path (-P)."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "server"), environment.pop("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def test_the_mark_shows_a_library_that_is_loaded(planted_backends: Path) -> None:
    run("import ctypes; ctypes.CDLL('./libggml-cpu.so')", planted_backends, MARK=str(planted_backends / "mark"))
    assert (planted_backends / "mark").exists()


@pytest.mark.parametrize(
    "program",
    [
        "from pyggml.model import start_backend; start_backend()",
        f"{PARSER}; CommandLine.parse(['-m', 'x.gguf', '-dev', 'none'])",
        f"{PARSER}; CommandLine.parse(['--list-devices'])",
        f"{PARSER}; CommandLine.parse(['-m', 'x.gguf', '-ot', 'a=CPU'])",
    ],
)
def test_a_library_in_the_current_folder_is_not_loaded(planted_backends: Path, program: str) -> None:
    run(program, planted_backends, MARK=str(planted_backends / "mark"))
    assert not (planted_backends / "mark").exists()


def write_plugin(site: Path, function: str) -> None:
    """A package `plugin`, installed as pip would, whose entry point is `plugin:path`."""
    (site / "plugin-1.0.dist-info").mkdir(parents=True)
    (site / "plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (site / "plugin-1.0.dist-info" / "entry_points.txt").write_text("[pyggml.backends]\nplugin = plugin:path\n")
    (site / "plugin.py").write_text(function)


def test_a_plugin_that_is_no_backend_is_told_and_nothing_else_is_lost(tmp_path: Path, smollm2_path: Path) -> None:
    write_plugin(tmp_path / "site", "def path():\n    return '/nowhere/libggml-x.so'\n")
    done = run(
        f"from pyggml import Model; Model({str(smollm2_path)!r}).close()", tmp_path, PYTHONPATH=str(tmp_path / "site")
    )
    assert "the backend plug-in 'plugin:path' is not used: cannot load the backend /nowhere/libggml-x.so" in done.stderr


def test_a_plugin_that_cannot_be_imported_is_told_and_nothing_else_is_lost(tmp_path: Path) -> None:
    write_plugin(tmp_path / "site", "import a_module_that_is_not_there\n")
    program = "from pyggml.backends import load_backends; load_backends(); load_backends()"
    done = run(program, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert done.stderr.count("is not used: No module named 'a_module_that_is_not_there'") == 1
