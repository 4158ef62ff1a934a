"""What scripts/wheels makes installs in an empty environment without a compiler or a network, and serves a chat.

The recipe is the real one with one CPU variant. ccache has most of its objects from the build of the clone, and CI has
ccache: there these tests always run.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from build_support.given_wheel import refuse_other_sources
from build_support.layout import of_this_clone
from build_support.packed_tree import LEFT_OUT

ROOT = of_this_clone().root
IS_WANTED = os.environ.get("PYGGML_TEST_WHEEL", "1" if shutil.which("ccache") else "0") == "1"
pytestmark = [
    pytest.mark.built,
    pytest.mark.slow,
    pytest.mark.skipif(not IS_WANTED, reason="without ccache this compiles everything once more: PYGGML_TEST_WHEEL=1"),
]


def must(command: list[str | Path], env: Mapping[str, str] | None = None, folder: Path = Path("/")) -> str:
    """Runs a command away from the clone, whose folders Python would import; returns what it printed."""
    merged = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=merged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(member)
    assert content is not None
    return content.read()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a source package and a wheel that was built from it, with one CPU variant."""
    folder = tmp_path_factory.mktemp("dist")
    must([ROOT / "scripts/wheels", folder], {"PYGGML_PORTABLE": "baseline"})
    return folder


@pytest.fixture(scope="module")
def wheel(made: Path) -> Path:
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    must([sys.executable, "-m", "venv", folder])
    must([folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", wheel])
    return folder


def test_the_wheel_is_for_every_python_and_has_every_backend_page_and_licence(wheel: Path) -> None:
    assert wheel.name.startswith("pyggml-")
    assert "-cp311-abi3-manylinux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert "_pyggml.abi3.so" in names
    assert "_pyggml.libs/libggml-cpu.so" in names
    assert "_pyggml.libs/NOTICES.txt" in names
    assert "pyggml_server/web/chat_page/index.html.gz" in names
    assert any(name.startswith("pyggml.libs/libgomp") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    refuse_other_sources(wheel, ROOT)


def test_the_source_package_has_the_tree_that_the_clone_builds_from(made: Path) -> None:
    (sdist,) = made.glob("*.tar.gz")
    with tarfile.open(sdist) as package:
        (inner,) = [member for member in package if member.name.endswith("vendor/ggml/llama.cpp.tar.xz")]
        with tarfile.open(fileobj=io.BytesIO(read(package, inner))) as tree:
            files = {member.name: read(tree, member) for member in tree if member.isfile()}
    here = of_this_clone().tree
    assert [name for name, content in files.items() if content != (here / name).read_bytes()] == []
    assert {"src/llama.cpp", "ggml/src/ggml-cuda/ggml-cuda.cu", "tools/server/server-task.cpp"} <= set(files)
    assert not any(name == left_out or name.startswith(f"{left_out}/") for name in files for left_out in LEFT_OUT)


def test_the_installed_server_answers_a_chat(environment: Path, smollm2_path: Path) -> None:
    program = environment / "bin/pyggml-server"
    said = must([environment / "bin/python", ROOT / "scripts/smoke_test.py", program, smollm2_path, "0"])
    assert said.startswith("first answer after")


def test_the_installed_server_says_which_devices_there_are(environment: Path) -> None:
    assert "Available devices" in must([environment / "bin/pyggml-server", "--list-devices"])


def test_a_library_in_the_current_folder_is_not_loaded_by_the_installed_server(
    environment: Path, planted_backends: Path
) -> None:
    mark = planted_backends / "mark"
    said = must([environment / "bin/pyggml-server", "--list-devices"], {"MARK": str(mark)}, planted_backends)
    assert "Available devices" in said
    assert not mark.exists()
