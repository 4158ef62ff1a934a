"""PYGGML_PORTABLE: a build for other machines, in a folder of its own."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from build_support.build_error import BuildError
from build_support.cmake_build import CMakeBuild, configure_command, run_cmake
from build_support.layout import of_this_clone
from build_support.pin import read_pin
from build_support.portable import portable_options
from build_support.tools import find_tools


@pytest.mark.parametrize("env", [{}, {"PYGGML_PORTABLE": ""}, {"PYGGML_PORTABLE": "0"}])
def test_a_build_is_for_this_machine_unless_it_is_asked_for(env: dict[str, str]) -> None:
    assert portable_options(env) == ()


def test_a_portable_build_has_every_cpu_variant_and_no_instruction_of_this_machine() -> None:
    options = portable_options({"PYGGML_PORTABLE": "1"})
    assert {"-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON"} == set(options)


def test_the_baseline_has_one_variant_that_the_oldest_machine_runs() -> None:
    options = portable_options({"PYGGML_PORTABLE": "baseline"})
    assert {"-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_AVX2=OFF", "-DGGML_SSE42=OFF"} <= set(options)
    assert "-DGGML_CPU_ALL_VARIANTS=ON" not in options


def test_another_value_is_an_error_that_names_it_and_what_can_be_said() -> None:
    with pytest.raises(BuildError, match="PYGGML_PORTABLE=yes is unknown") as caught:
        portable_options({"PYGGML_PORTABLE": "yes"})
    assert caught.value.remedy == "use one of: 0, 1, baseline"


def test_wheels_that_are_published_are_for_other_machines() -> None:
    table = tomllib.loads((of_this_clone().root / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert "-DGGML_CPU_ALL_VARIANTS=ON" in portable_options(table["environment"])


def commands(folder: Path, tree: Path) -> dict[str, str]:
    """How each source outside ggml is compiled in a build folder, by its object."""
    entries = json.loads((folder / "compile_commands.json").read_text())
    lines = [
        entry["command"].replace(str(folder), "build") for entry in entries if f"{tree}/ggml/" not in entry["file"]
    ]
    return {line.split(" -o ")[1].split()[0]: line for line in lines}


@pytest.mark.built
def test_a_wheel_compiles_all_but_ggml_as_the_clone_does_so_that_ccache_has_it(tmp_path: Path) -> None:
    layout, options = of_this_clone(), portable_options({"PYGGML_PORTABLE": "baseline"})
    both = [layout.build / "cmake", tmp_path / "build" / "wheel"]
    pin, tools = read_pin(layout.pin_file), find_tools(os.environ)
    run_cmake(configure_command(CMakeBuild(layout, layout.tree, both[1], pin, tools, options)), os.environ, "configure")
    of_clone, of_wheel = (commands(folder, layout.tree) for folder in both)
    assert len(of_wheel) > 150
    assert {name: line for name, line in of_wheel.items() if of_clone.get(name) != line} == {}


@pytest.mark.built
def test_no_library_names_the_folder_it_was_built_in() -> None:
    layout = of_this_clone()
    libraries = list((layout.build / "cmake" / "bin").glob("libpyggml-*.so"))
    assert len(libraries) > 5
    assert [path.name for path in libraries if f"{layout.root}/".encode() in path.read_bytes()] == []
