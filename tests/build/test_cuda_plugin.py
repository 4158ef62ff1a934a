"""pyggml-cuda says everything that is missing at once, and finds what NVIDIA's packages brought. Needs no GPU: empty
libraries stand in for NVIDIA's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from build_support.layout import of_this_clone
from build_support.tools import require_compiler

NVIDIA = ("libcuda.so.99", "libcudart.so.99", "libnccl.so.99")  # no machine has these
ASK = "import pyggml_cuda; print(pyggml_cuda.library_path())"


def compile_library(path: Path, *linked: Path) -> Path:
    command = [require_compiler(os.environ), "-shared", "-fPIC", "-xc++", "/dev/null", "-o", str(path)]
    named = [f"-Wl,-soname,{path.name}", "-xnone", "-Wl,--no-as-needed", *map(str, linked)]
    subprocess.run([*command, *named], check=True)
    return path


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drivers")
    for name in NVIDIA:
        compile_library(folder / name)
    return folder


@pytest.fixture(scope="module")
def site(drivers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed, around a library that is linked with `drivers`."""
    folder = tmp_path_factory.mktemp("plugin")
    library = compile_library(folder / "any-name.so", *(drivers / name for name in NVIDIA))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--target", str(folder / "site"), str(of_this_clone().root / "plugins/cuda")),
        ],
        env={**os.environ, "PYGGML_CUDA_LIBRARY": str(library), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
    )
    return folder / "site"


def ask(site: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """What the plug-in answers in a process of its own, which loads libraries for good."""
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(site), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_that_is_missing_is_named_in_one_line_with_where_it_comes_from(site: Path) -> None:
    last_line = ask(site).stderr.splitlines()[-1]
    assert last_line.startswith("OSError: libcuda.so.99, libcudart.so.99, libnccl.so.99 cannot be loaded: ")
    assert "NVIDIA's driver" in last_line
    assert "pip install nvidia-cuda-runtime" in last_line


def test_a_machine_with_all_of_it_gets_the_path_of_the_library(site: Path, drivers: Path) -> None:
    done = ask(site, LD_LIBRARY_PATH=str(drivers))
    assert done.stdout.strip() == str(site / "pyggml_cuda" / "libggml-cuda.so"), done.stderr


def test_what_nvidias_packages_brought_is_found_and_only_the_driver_is_missing(
    site: Path, drivers: Path, tmp_path: Path
) -> None:
    libraries = tmp_path / "nvidia" / "cu13" / "lib"
    libraries.mkdir(parents=True)
    for name in NVIDIA[1:]:
        (libraries / name).symlink_to(drivers / name)
    last_line = ask(site, PYTHONPATH=os.pathsep.join([str(site), str(tmp_path)])).stderr.splitlines()[-1]
    assert last_line.startswith("OSError: libcuda.so.99 cannot be loaded: ")
