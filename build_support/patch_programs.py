"""The test programs that patches bring: which they are, and how each is run on its own, on the CPU or on simdev."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from build_support.build_error import BuildError
from build_support.git import git_output
from build_support.tree import BASE

#: Writes a small model of every architecture.
MODEL_WRITER = "test-llama-archs"
ALL_MODELS, FEW_MODELS, ONE_MODEL, HYBRID_MODEL = "ALL_MODELS", "FEW_MODELS", "ONE_MODEL", "HYBRID_MODEL"
#: A folder with a library that must not be loaded.
PLANTED = "PLANTED"
#: What a program takes; one that is not named here takes nothing.
ARGUMENTS = {
    "test-backend-search-path": (PLANTED,),
    "test-graph-width": (ONE_MODEL, HYBRID_MODEL),
    "test-host-memory": (ONE_MODEL,),
    "test-memory-async-copy": (ALL_MODELS,),
    "test-memory-n-cells": (ALL_MODELS,),
    "test-outputs-threads": (ONE_MODEL,),
    "test-state-restore-fragmented": ("-m", ONE_MODEL, "-ngl", "99", "-t", "1"),
    "test-state-seq-copy": (FEW_MODELS,),
}
#: One of each kind of memory: plain, window, MLA, hybrid, recurrent. The first is the one model.
FEW = ("llama-dense", "gemma3-dense", "deepseek2-moe", "qwen3next-moe", "mamba-dense")
LIMIT_S = 600


def new_tests(tree: Path) -> list[str]:
    """The test programs that the patches so far added."""
    return _programs(tree, BASE, "A")


def programs_since(tree: Path, commit: str) -> list[str]:
    """The test programs that the patches after `commit` added or changed."""
    return _programs(tree, commit, "AM")


def _programs(tree: Path, since: str, what: str) -> list[str]:
    options = ("--name-only", "--no-renames", f"--diff-filter={what}")
    found = git_output(tree, "diff", *options, f"{since}..HEAD", "--", "tests/test-*.cpp")
    return [Path(name).stem for name in found.split()]


def take_models(programs: list[str]) -> bool:
    return any({ALL_MODELS, FEW_MODELS, ONE_MODEL, HYBRID_MODEL} & set(ARGUMENTS.get(name, ())) for name in programs)


@dataclass(frozen=True)
class Programs:
    """Built programs, and the folder for the models that they take."""

    bin: Path
    models: Path

    def write_models(self) -> None:
        """Blocks for some seconds. Raises BuildError when the writer fails."""
        everything, few = self.models / "all", self.models / "few"
        if few.is_dir():
            return
        everything.mkdir(parents=True, exist_ok=True)
        self._run("cpu", MODEL_WRITER, ["-o", f"{everything}/"], {})
        few.mkdir()
        for name in FEW:
            if (everything / f"{name}.gguf").exists():
                (few / f"{name}.gguf").symlink_to(everything / f"{name}.gguf")

    def run(self, name: str, simdev: Path | None) -> None:
        """Blocks. Raises BuildError when the program does not end well."""
        places = {
            PLANTED: str(self.bin / "planted"),
            ALL_MODELS: str(self.models / "all"),
            FEW_MODELS: str(self.models / "few"),
            ONE_MODEL: str(self.models / "few" / f"{FEW[0]}.gguf"),
            HYBRID_MODEL: str(self.models / "few" / f"{FEW[3]}.gguf"),
        }
        words = [places.get(word, word) for word in ARGUMENTS.get(name, ())]
        device = "cpu" if simdev is None else "simdev"
        self._run(device, name, words, {} if simdev is None else {"GGML_BACKEND_PATH": str(simdev)})

    def _run(self, device: str, name: str, words: list[str], more_env: dict[str, str]) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("SIMDEV_", "GGML_BACKEND_"))}
        env |= {"OMP_THREAD_LIMIT": "1", **more_env}
        command = [str(self.bin / name), *words]
        try:
            done = subprocess.run(
                command, env=env, cwd=self.bin, capture_output=True, text=True, errors="replace", timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{name} on {device} ran for more than {LIMIT_S} s", "run it in a debugger") from None
        if done.returncode != 0:
            last = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            what = f"{name} on {device} failed (exit code {done.returncode}):\n    {last}"
            raise BuildError(what, f"fix the patch that brought it, then run again: {' '.join(command)}")
