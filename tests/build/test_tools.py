"""A missing or old program is named, with the way to get it; pip's temporary programs are the last choice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.git import git
from build_support.tools import find_program, find_tools, require_compiler


def program(folder: Path, name: str, says: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_no_compiler_is_one_message_with_a_remedy(tmp_path: Path) -> None:
    program(tmp_path, "cmake", "cmake version 3.25.1")
    with pytest.raises(BuildError, match=r"no C\+\+ compiler: none of c\+\+, g\+\+, clang\+\+(.|\n)*apt install g\+\+"):
        find_tools({"PATH": str(tmp_path)})


def test_a_compiler_named_by_cxx_must_exist(tmp_path: Path) -> None:
    program(tmp_path, "c++")
    with pytest.raises(BuildError, match=r"CXX=my-c\+\+ is not on PATH"):
        require_compiler({"PATH": str(tmp_path), "CXX": "my-c++"})
    mine = program(tmp_path, "my-c++")
    assert require_compiler({"PATH": str(tmp_path), "CXX": "ccache my-c++"}) == str(mine)


def test_no_cmake_is_one_message_with_a_remedy(tmp_path: Path) -> None:
    program(tmp_path, "g++")
    with pytest.raises(BuildError, match=rf"cmake is not on PATH \({tmp_path}\)(.|\n)*pip install cmake"):
        find_tools({"PATH": str(tmp_path)})


def test_a_cmake_that_is_too_old_names_both_versions(tmp_path: Path) -> None:
    program(tmp_path, "g++")
    program(tmp_path, "cmake", "cmake version 3.10.2")
    with pytest.raises(BuildError, match=r"is version 3\.10, at least 3\.18 is needed"):
        find_tools({"PATH": str(tmp_path)})


def test_an_old_cmake_does_not_hide_a_new_one_behind_it(tmp_path: Path) -> None:
    program(tmp_path / "old", "g++")
    program(tmp_path / "old", "cmake", "cmake version 3.10.2")
    new = program(tmp_path / "new", "cmake", "cmake version 4.0.0")
    tools = find_tools({"PATH": f"{tmp_path / 'old'}:{tmp_path / 'new'}"})
    assert (tools.cmake, tools.ninja, tools.ccache) == (str(new), None, None)


def test_a_lasting_program_wins_over_one_of_pips_isolated_build(tmp_path: Path) -> None:
    temporary = program(tmp_path / "pip-build-env-x", "ninja")
    path = f"{temporary.parent}:{tmp_path / 'usr'}"
    assert find_program("ninja", {"PATH": path}) == str(temporary)
    lasting = program(tmp_path / "usr", "ninja")
    assert find_program("ninja", {"PATH": path}) == str(lasting)


def test_no_git_is_one_message_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=rf"git is not on PATH \({re.escape(str(tmp_path))}\)(.|\n)*install git"):
        git(tmp_path, "status")
