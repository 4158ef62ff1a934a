"""The options of a build that runs on other machines: any x86-64 level, backends as files that are chosen at start.

PYGGML_PORTABLE=1 asks for it (scripts/wheels does). PYGGML_PORTABLE=baseline does the same with one CPU variant, which
takes much less time. Without it, a build is for this machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from build_support.build_error import BuildError

VARIABLE = "PYGGML_PORTABLE"
_LOADABLE = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON")
#: What each value of the variable adds. The baseline is what the oldest x86-64 machines run.
_CHOICES = {
    "": (),
    "0": (),
    "1": (*_LOADABLE, "-DGGML_CPU_ALL_VARIANTS=ON"),
    "baseline": (*_LOADABLE, *(f"-DGGML_{name}=OFF" for name in ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C"))),
}


def portable_options(env: Mapping[str, str]) -> tuple[str, ...]:
    """CMake options, none for a build for this machine. Raises BuildError for a value that means nothing."""
    wanted = env.get(VARIABLE, "")
    if wanted not in _CHOICES:
        known = ", ".join(value for value in _CHOICES if value)
        raise BuildError(f"{VARIABLE}={wanted} is unknown", f"use one of: {known}")
    return _CHOICES[wanted]
