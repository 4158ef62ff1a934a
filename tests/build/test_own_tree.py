"""PYGGML_LLAMA_DIR: a checkout without our patches is refused by what it lacks, and one with them is used as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.own_tree import NEEDED, PARTS, own_tree
from build_support.series import series_files

PATCHES = Path("patches")


def checkout(folder: Path, header: str) -> Path:
    for part in PARTS:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()
    for name, names in NEEDED.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(header if name == "include/llama.h" else " ".join(names))
    return folder


def test_unset_means_the_pinned_source() -> None:
    assert own_tree({}, PATCHES) is None
    assert own_tree({"PYGGML_LLAMA_DIR": ""}, PATCHES) is None


def test_a_folder_that_is_no_tree_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BuildError, match=rf"PYGGML_LLAMA_DIR={tmp_path} is not a usable llama\.cpp tree: no CMakeLists"
    ):
        own_tree({"PYGGML_LLAMA_DIR": str(tmp_path)}, PATCHES)


def test_a_checkout_without_our_patches_is_told_what_it_lacks_and_how_to_get_it(tmp_path: Path) -> None:
    tree = checkout(tmp_path, "int llama_memory_n_cells_used(void);")
    with pytest.raises(BuildError, match=rf"no llama_memory_seq_n_cells in include/llama\.h(.|\n)*git -C {tree} am"):
        own_tree({"PYGGML_LLAMA_DIR": str(tree)}, PATCHES)


def test_the_command_that_it_is_told_applies_the_patches_in_their_order(tmp_path: Path) -> None:
    patches = of_this_clone().patches
    with pytest.raises(BuildError) as caught:
        own_tree({"PYGGML_LLAMA_DIR": str(checkout(tmp_path, ""))}, patches)
    arguments = caught.value.remedy.partition(" am ")[2].partition("), or unset")[0]
    said = subprocess.run(["sh", "-c", f"echo {arguments}"], capture_output=True, text=True, check=True).stdout
    assert said.split() == [str(path) for path in series_files(patches)]


def test_a_patched_checkout_is_used_where_it_lies(tmp_path: Path) -> None:
    tree = checkout(tmp_path, " ".join(NEEDED["include/llama.h"]))
    assert own_tree({"PYGGML_LLAMA_DIR": str(tree)}, PATCHES) == tree


def test_everything_that_is_asked_of_a_checkout_comes_from_the_series() -> None:
    added = "".join(path.read_text(encoding="ascii") for path in series_files(of_this_clone().patches))
    for names in NEEDED.values():
        for name in names:
            assert any(line.startswith("+") and name in line for line in added.splitlines()), name
