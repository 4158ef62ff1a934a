"""PYGGML_PORTABLE: a build for other machines, in a folder of its own."""

from __future__ import annotations

import tomllib

import pytest

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.portable import portable_options


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
