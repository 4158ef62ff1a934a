"""The compiled module: its types are current, and a missing or foreign one is refused at import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from native.write_stub import STUB, stub_text

ROOT = Path(__file__).parents[2]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )


def test_the_stub_matches_the_declarations() -> None:
    assert STUB.read_text(encoding="utf-8") == stub_text(), "run python -m native.write_stub"


def test_a_missing_module_says_how_to_install_it() -> None:
    done = run("import sys; sys.modules['_pyggml'] = None; import pyggml")
    assert done.returncode == 1
    assert "ImportError: the compiled module _pyggml cannot be imported" in done.stderr
    assert "pip install ." in done.stderr


@pytest.mark.parametrize("function", ["pyggml_calls_version", "pyggml_sizeof_context_params"])
def test_a_library_of_another_build_is_refused_at_import(function: str) -> None:
    done = run(
        "import _pyggml, sys, types\n"
        "class Other:\n"
        "    def __getattr__(self, name):\n"
        f"        return (lambda: 999) if name == {function!r} else getattr(_pyggml.lib, name)\n"
        "fake = types.ModuleType('_pyggml'); fake.ffi = _pyggml.ffi; fake.lib = Other()\n"
        "sys.modules['_pyggml'] = fake\n"
        "import pyggml\n"
    )
    assert done.returncode == 1
    assert "ImportError: _pyggml was compiled for another native library" in done.stderr
    assert "999" in done.stderr
