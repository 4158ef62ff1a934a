"""Where the router's program is: next to the libraries of the compiled module. Pure, but for a look at files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pyggml_server.errors import UsageError

PROGRAM = "pyggml-router"


def router_program() -> Path:
    """Raises UsageError where the build made none."""
    module = find_spec("_pyggml")
    assert module is not None, "the command line was parsed with it"
    assert module.origin is not None, "it is a file"
    program = Path(module.origin).with_name("_pyggml.libs") / PROGRAM
    if not program.is_file():
        raise UsageError(f"error: {program} is missing: reinstall, or give a model (-m FILE, -hf user/model)")
    return program
