"""scripts/patches check --build: builds after each patch, runs the tests that it brought, stops where it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.patch_builds import check_builds
from build_support.patch_programs import ARGUMENTS, Programs, new_tests, programs_since
from tests.build.conftest import FILES, Clone, write_archive

Commit = Callable[..., str]

PROJECT = """cmake_minimum_required(VERSION 3.18)
project(small CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(llama src/llama.cpp)
file(GLOB programs CONFIGURE_DEPENDS tests/test-*.cpp)
foreach (program ${programs})
    get_filename_component(name ${program} NAME_WE)
    add_executable(${name} ${program})
endforeach()
"""
GOOD, BAD = "int main() { return 0; }\n", '#include <cstdio>\nint main() { std::puts("two is not one"); return 3; }\n'


@pytest.fixture
def buildable(clone: Clone, tmp_path: Path) -> Clone:
    files = {**FILES, "CMakeLists.txt": PROJECT, "tests/README": "programs come with patches\n"}
    clone.set_pin(write_archive(tmp_path / "small.tar.gz", files))
    clone.ensure()
    return clone


def test_a_patch_that_does_not_compile_is_found_and_nothing_is_left_behind(
    buildable: Clone, commit: Commit, capfd: pytest.CaptureFixture[str]
) -> None:
    commit("llama : return two")
    commit("llama : return nothing", text="int one(void) { not C++ }\n")
    buildable.export()
    with pytest.raises(BuildError, match=r"build failed"):
        check_builds(buildable.layout, buildable.lines.append)
    assert buildable.lines[-2:] == ["patch: llama-return-two.patch", "patch: llama-return-nothing.patch"]
    assert "not C++" in "".join(capfd.readouterr())
    assert not (buildable.layout.vendor / "checking").exists()


def test_the_tests_of_a_patch_run_right_after_it_and_one_that_fails_is_named(buildable: Clone, commit: Commit) -> None:
    commit("llama : test one", "tests/test-one.cpp", GOOD)
    commit("llama : test two", "tests/test-two.cpp", BAD)
    buildable.export()
    with pytest.raises(BuildError, match=r"test-two on cpu failed \(exit code 3\):\n    two is not one"):
        check_builds(buildable.layout, buildable.lines.append)
    assert buildable.lines[-3:] == [
        "patch: llama-test-one.patch",
        "test: test-one ok on cpu",
        "patch: llama-test-two.patch",
    ]


def test_a_patch_that_changes_a_test_runs_it_again(buildable: Clone, commit: Commit) -> None:
    commit("llama : test one", "tests/test-one.cpp", GOOD)
    commit("llama : test more of one", "tests/test-one.cpp", BAD)
    buildable.export()
    assert programs_since(buildable.layout.tree, "HEAD~") == new_tests(buildable.layout.tree) == ["test-one"]
    with pytest.raises(BuildError, match=r"test-one on cpu failed"):
        check_builds(buildable.layout, buildable.lines.append)


USES_ONE = f'#include "one.h"\n{GOOD}'


def test_a_patch_is_built_on_what_its_group_needs(buildable: Clone, commit: Commit) -> None:
    commit("llama : declare one", "tests/one.h", "int one(void);\n", group="B")
    commit("llama : test one", "tests/test-one.cpp", USES_ONE, group="C")
    buildable.export()
    check_builds(buildable.layout, buildable.lines.append)
    assert buildable.lines[-1] == "test: test-one ok on cpu"


def test_a_patch_is_built_without_what_its_group_does_not_need(
    buildable: Clone, commit: Commit, capfd: pytest.CaptureFixture[str]
) -> None:
    commit("llama : declare one", "tests/one.h", "int one(void);\n", group="B")
    commit("llama : test one", "tests/test-one.cpp", USES_ONE, group="apart")
    buildable.export()
    with pytest.raises(BuildError, match=r"build failed"):
        check_builds(buildable.layout, buildable.lines.append)
    assert "one.h" in "".join(capfd.readouterr())


def test_only_as_many_patches_are_built_as_were_asked_for(buildable: Clone, commit: Commit) -> None:
    commit("llama : test one", "tests/test-one.cpp", GOOD)
    commit("llama : test two", "tests/test-two.cpp", BAD)
    buildable.export()
    check_builds(buildable.layout, buildable.lines.append, n_first=1)
    assert buildable.lines[-1] == "test: test-one ok on cpu"
    with pytest.raises(BuildError, match=r"--first 3: the series has 2 patches"):
        check_builds(buildable.layout, buildable.lines.append, n_first=3)


def test_a_program_gets_the_model_that_it_takes_and_no_device_but_the_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_BACKEND_PATH", "another")
    said = tmp_path / "said"
    program = tmp_path / "test-state-restore-fragmented"
    program.write_text(f'#!/bin/sh\necho "$GGML_BACKEND_PATH" "$@" >>{said}\n', encoding="ascii")
    program.chmod(0o755)
    programs = Programs(tmp_path, tmp_path / "models")
    programs.run(program.name, None)
    programs.run(program.name, tmp_path / "simdev.so")
    words = ["-m", str(tmp_path / "models" / "few" / "llama-dense.gguf"), *ARGUMENTS[program.name][2:]]
    assert [line.split() for line in said.read_text().splitlines()] == [words, [str(tmp_path / "simdev.so"), *words]]


def test_models_are_written_once(tmp_path: Path) -> None:
    writer = tmp_path / "test-llama-archs"
    writer.write_text(
        '#!/bin/sh\necho once >>"$0.log"\ntouch "$2/llama-dense.gguf" "$2/other.gguf"\n', encoding="ascii"
    )
    writer.chmod(0o755)
    programs = Programs(tmp_path, tmp_path / "models")
    programs.write_models()
    programs.write_models()
    assert (tmp_path / "test-llama-archs.log").read_text() == "once\n"
    assert [path.name for path in (tmp_path / "models" / "few").iterdir()] == ["llama-dense.gguf"]


@pytest.mark.built
def test_every_test_of_this_repository_that_needs_a_model_is_still_there() -> None:
    assert [name for name in ARGUMENTS if not (of_this_clone().tree / "tests" / f"{name}.cpp").is_file()] == []
