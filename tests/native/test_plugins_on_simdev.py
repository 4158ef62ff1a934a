"""A backend that a plug-in brings serves as one of ours: here simdev."""

from __future__ import annotations

from pathlib import Path

from tests.native.conftest import NativeTests
from tests.pyggml.test_backends import run, write_plugin

PROGRAM = """
from pyggml import backends
from pyggml.ffi import lib
backends.load_backends()
from pyggml.model import start_backend
start_backend()
print(lib.llama_supports_gpu_offload())
"""


def test_the_device_of_a_plugin_is_there(tmp_path: Path, native_tests: NativeTests) -> None:
    assert run(PROGRAM, tmp_path).stdout == "False\n"
    write_plugin(tmp_path / "site", f"def path():\n    return {str(native_tests.simdev)!r}\n")
    assert run(PROGRAM, tmp_path, PYTHONPATH=str(tmp_path / "site")).stdout == "True\n"
