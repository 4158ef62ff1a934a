"""What the series calls of CUDA has a name in HIP: compiled against HIP's headers, if there are any.

HIP_INCLUDE names their folder (Debian's libamdhip64-dev has them); without it the system's is looked for. MUSA's
headers are in no package that could be asked for: its names are unchecked.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from build_support.git import git_output
from build_support.layout import of_this_clone
from build_support.tools import require_compiler

# as ggml-cuda.cu calls them
PROGRAM = """
bool is_reached(cudaEvent_t event) { return cudaEventQuery(event) != cudaErrorNotReady; }
bool pin(void * data, size_t size) {
    if (cudaHostRegister(data, size, cudaHostRegisterPortable) == cudaSuccess) { return true; }
    return cudaGetLastError() == cudaSuccess && cudaGetErrorString(cudaSuccess) == nullptr;
}
bool unpin(void * data) { const cudaError_t error = cudaHostUnregister(data); return error == cudaSuccess; }
"""


def hip_include() -> Path:
    folder = Path(os.environ.get("HIP_INCLUDE", "/usr/include"))
    if not (folder / "hip" / "hip_runtime_api.h").is_file():
        pytest.skip(f"{folder} has no hip/hip_runtime_api.h: set HIP_INCLUDE")
    return folder


def called_names() -> set[str]:
    """Of CUDA's functions and values, those that the lines the series adds use."""
    changes = git_output(of_this_clone().tree, "diff", "base", "HEAD", "--", "ggml/src/ggml-cuda/ggml-cuda.cu")
    added = "\n".join(line for line in changes.splitlines() if line.startswith("+"))
    return set(re.findall(r"\bcuda[A-Z]\w*", added))


def mapped_names() -> dict[str, str]:
    text = (of_this_clone().tree / "ggml/src/ggml-cuda/vendors/hip.h").read_text(encoding="utf-8")
    return dict(re.findall(r"^#define (cuda\w+) (hip\w+)$", text, re.MULTILINE))


def test_every_name_that_the_series_uses_is_mapped_and_compiled_here() -> None:
    assert called_names() <= set(mapped_names())
    assert called_names() <= set(re.findall(r"\bcuda[A-Z]\w*", PROGRAM))


def test_the_mapped_names_compile_against_the_headers(tmp_path: Path) -> None:
    include, mapped = hip_include(), mapped_names()
    used = sorted(set(re.findall(r"\bcuda[A-Z]\w*", PROGRAM)))
    defines = "\n".join(f"#define {name} {mapped[name]}" for name in used)
    source = tmp_path / "names.cpp"
    source.write_text(f"#include <hip/hip_runtime_api.h>\n{defines}\n{PROGRAM}", encoding="ascii")
    command = [require_compiler(os.environ), "-std=c++17", "-fsyntax-only", "-D__HIP_PLATFORM_AMD__", "-isystem"]
    done = subprocess.run([*command, str(include), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
