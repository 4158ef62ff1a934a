"""Builds the measuring program against the libraries of a build. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PATTERNS = ("comb", "broken", "one_run")
DIRECTIONS = ("park", "restore")
_SOURCE = Path(__file__).parent / "transfers.cpp"


def build(folder: Path, tree: Path, libraries: Path) -> Path:
    """The program, built if it is older than its sources or the libraries. SystemExit with a remedy if it cannot be."""
    llama = libraries / "libpyggml-llama.so"
    headers = [tree / "include", tree / "ggml/include"]
    for needed in (llama, headers[0] / "llama.h"):
        if not needed.exists():
            raise SystemExit(f"{needed} is not there: run scripts/setup first, or name --tree and --libraries")
    program = folder / "transfers"
    sources = [*_SOURCE.parent.glob("*.[ch]pp"), *_SOURCE.parents[1].glob("*.hpp"), llama]
    if program.exists() and all(program.stat().st_mtime > source.stat().st_mtime for source in sources):
        return program
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise SystemExit("there is no C++ compiler: install one, or name it in CXX")
    folder.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-std=c++17", "-O2", "-Wall", "-Wextra", "-rdynamic", str(_SOURCE), "-o", str(program)]
    for header in headers:
        command += ["-isystem", str(header)]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries.resolve()}"]
    subprocess.run([*command, "-lpyggml-llama", "-lpyggml-ggml", "-lpyggml-ggml-base", "-ldl"], check=True)
    return program
