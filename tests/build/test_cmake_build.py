"""What CMake is told: the user's options last, the pin's commit, paths relative to the clone. What a failure says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.cmake_build import (
    CMakeBuild,
    build_environment,
    configure_command,
    forget_other_options,
    how_long,
    n_jobs,
    run_cmake,
    shared_libraries,
    user_options,
)
from build_support.layout import Layout
from build_support.pin import Pin
from build_support.tools import Tools

PIN = Pin("p", "1", "a" * 64, "0c1e57098", 0, "0.1.2")


def build_in(root: Path, tools: Tools, options: tuple[str, ...] = ()) -> CMakeBuild:
    return CMakeBuild(Layout(root), root / "tree", root / "build" / "cmake", PIN, tools, options)


def test_cmake_args_reach_cmake_last_and_split_like_a_shell_does(tmp_path: Path) -> None:
    options = user_options({"CMAKE_ARGS": "-DGGML_CUDA=ON '-DCMAKE_CXX_FLAGS=-O1 -g'"})
    command = configure_command(build_in(tmp_path, Tools("cmake", None, None), options))
    assert command[-2:] == ["-DGGML_CUDA=ON", "-DCMAKE_CXX_FLAGS=-O1 -g"]


def test_ninja_and_ccache_are_used_only_where_they_are_present(tmp_path: Path) -> None:
    with_both = configure_command(build_in(tmp_path, Tools("cmake", "/bin/ninja", "/bin/ccache")))
    assert "-DCMAKE_MAKE_PROGRAM=/bin/ninja" in with_both
    assert "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" in with_both
    plain = " ".join(configure_command(build_in(tmp_path, Tools("cmake", None, None))))
    assert "Ninja" not in plain
    assert "LAUNCHER" not in plain


def test_the_build_information_comes_from_the_pin(tmp_path: Path) -> None:
    command = configure_command(build_in(tmp_path, Tools("cmake", None, None)))
    assert "-DLLAMA_BUILD_COMMIT=0c1e57098" in command
    assert "-DLLAMA_BUILD_NUMBER=0" in command


def test_the_compiler_cache_sees_paths_relative_to_the_clone(tmp_path: Path) -> None:
    env = build_environment(Layout(tmp_path), {"PATH": "/bin"})
    assert (env["CCACHE_BASEDIR"], env["CCACHE_NOHASHDIR"], env["PATH"]) == (str(tmp_path), "1", "/bin")
    assert build_environment(Layout(tmp_path), {"CCACHE_BASEDIR": "/mine"})["CCACHE_BASEDIR"] == "/mine"


def test_an_option_that_is_no_longer_given_is_forgotten(tmp_path: Path) -> None:
    tools = Tools("cmake", None, None)
    build = build_in(tmp_path, tools, ("-DGGML_CUDA=ON",))
    forget_other_options(build)
    cache = build.folder / "CMakeCache.txt"
    cache.write_text("GGML_CUDA:BOOL=ON\n")
    forget_other_options(build)
    assert cache.exists()
    forget_other_options(build_in(tmp_path, tools))
    assert not cache.exists()


def test_a_failing_command_is_named_with_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    script = "print('compiler says no'); raise SystemExit(3)"
    with pytest.raises(BuildError, match=r"build failed \(exit code 3\)(.|\n)*remedy"):
        run_cmake([sys.executable, "-c", script], {}, "build")
    assert "compiler says no" in capfd.readouterr().out


def test_the_first_build_says_how_long_it_takes_here_and_a_later_one_that_it_is_short(tmp_path: Path) -> None:
    tools = Tools("cmake", None, None)
    one_machine = build_in(tmp_path, tools)
    assert "about 15 minutes (cores: 2)" in how_long(one_machine, n_cores=2)
    assert "about 2 minutes (cores: 16)" in how_long(one_machine, n_cores=16)
    assert "about 23 minutes" in how_long(build_in(tmp_path, tools, ("-DGGML_CPU_ALL_VARIANTS=ON",)), n_cores=2)
    one_machine.folder.mkdir(parents=True)
    (one_machine.folder / "CMakeCache.txt").touch()
    assert how_long(one_machine, n_cores=2) == "compiling what changed since the last build"


def test_the_user_chooses_how_many_compilers_run_and_sees_how_far_they_are(tmp_path: Path) -> None:
    assert n_jobs({"CMAKE_BUILD_PARALLEL_LEVEL": "3"}) == 3
    assert n_jobs({}) == (os.cpu_count() or 1)
    assert build_environment(Layout(tmp_path), {})["NINJA_STATUS"] == "[%f/%t, %e s] "


def test_the_libraries_are_the_files_themselves(tmp_path: Path) -> None:
    for name in ("libpyggml-llama.so", "libother.so", "libpyggml-x.a"):
        (tmp_path / name).touch()
    (tmp_path / "libpyggml-old.so").symlink_to("libpyggml-llama.so")
    assert [path.name for path in shared_libraries(tmp_path)] == ["libpyggml-llama.so"]
