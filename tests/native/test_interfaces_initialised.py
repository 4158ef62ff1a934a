"""Every device interface of the tree sets every member of `ggml_backend_device_i`, `event_query` by name.

A shorter initialiser compiles: the members that it leaves out are zero. So the entries are counted in the source for
all seventeen, and the compiler judges those whose headers are here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from build_support.layout import of_this_clone

TREE = of_this_clone().tree
SOURCES = TREE / "ggml" / "src"
# Those that need no vendor's headers.
BUILT_HERE = ("ggml-cpu/ggml-cpu.cpp", "ggml-rpc/ggml-rpc.cpp", "ggml-backend-meta.cpp")
N_INTERFACES = 17
INITIALISER = re.compile(r"ggml_backend_device_i\s+\w+\s*=\s*\{\n(.*?)\n\};", re.DOTALL)
ENTRY = re.compile(r"/\*\s*\.(\w+)\s*= ?\*/")


def members(header: str) -> list[str]:
    """The names of the function pointers in `struct ggml_backend_device_i`, in order."""
    body = re.search(r"struct ggml_backend_device_i \{(.*?)\n    \};", header, re.DOTALL)
    assert body is not None, "ggml-backend-impl.h has no struct ggml_backend_device_i"
    return re.findall(r"\(\*\s*(\w+)\)\s*\(", body[1])


def initialised(source: str) -> list[list[str]]:
    """For each device interface in one file, the members that it names in its comments."""
    return [ENTRY.findall(body) for body in INITIALISER.findall(source)]


def sources_with_interfaces() -> dict[str, list[list[str]]]:
    files = [path for pattern in ("*.cpp", "*.cu", "*.m") for path in sorted(SOURCES.rglob(pattern))]
    found = {str(path.relative_to(SOURCES)): initialised(path.read_text(encoding="utf-8")) for path in files}
    return {name: lists for name, lists in found.items() if lists}


@pytest.fixture(scope="module")
def all_members() -> list[str]:
    return members((SOURCES / "ggml-backend-impl.h").read_text(encoding="utf-8"))


def test_event_query_is_the_last_member(all_members: list[str]) -> None:
    assert all_members[-1] == "event_query"


def test_all_seventeen_interfaces_name_every_member_in_order(all_members: list[str]) -> None:
    found = sources_with_interfaces()
    assert sum(len(lists) for lists in found.values()) == N_INTERFACES, sorted(found)
    wrong = {name: names for name, lists in found.items() for names in lists if names != all_members}
    assert wrong == {}


def test_only_cuda_implements_the_query() -> None:
    values = re.compile(r"/\*\s*\.event_query\s*= ?\*/\s*(\w+)")
    given = {name: values.findall((SOURCES / name).read_text(encoding="utf-8")) for name in sources_with_interfaces()}
    real = {name: value for name, value in given.items() if value not in (["NULL"], ["nullptr"])}
    assert real == {"ggml-cuda/ggml-cuda.cu": ["ggml_backend_cuda_device_event_query"]}


@pytest.mark.parametrize("vendor", ["hip", "musa"])
@pytest.mark.parametrize("name", ["EventQuery", "ErrorNotReady"])
def test_hip_and_musa_map_what_cuda_uses(vendor: str, name: str) -> None:
    header = (SOURCES / "ggml-cuda" / "vendors" / f"{vendor}.h").read_text(encoding="utf-8")
    assert f"#define cuda{name} {vendor}{name}\n" in header


def compile_only(source: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    assert compiler is not None, "no C++ compiler: install one, or set CXX"
    command: list[str | Path] = [compiler, "-std=c++17", "-fsyntax-only", "-Wextra"]
    command += ["-Werror=missing-field-initializers", '-DGGML_VERSION="x"', '-DGGML_COMMIT="x"']
    command += [f"-I{folder}" for folder in (TREE / "ggml" / "include", SOURCES, SOURCES / "ggml-cpu")]
    return subprocess.run([*command, source], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", BUILT_HERE)
def test_the_compiler_finds_no_member_missing(name: str) -> None:
    done = compile_only(SOURCES / name)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_member_that_is_left_out_is_found(tmp_path: Path, all_members: list[str]) -> None:
    text = (SOURCES / BUILT_HERE[0]).read_text(encoding="utf-8")
    shorter = re.sub(r"\n[^\n]*\.event_query[^\n]*", "", text)
    (tmp_path / "ggml-cpu.cpp").write_text(shorter, encoding="utf-8")
    assert [names for names in initialised(shorter) if names != all_members]
    assert "missing-field-initializers" in compile_only(tmp_path / "ggml-cpu.cpp").stderr
