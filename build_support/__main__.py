"""`python -m build_support`: the long part of an installation on its own, with its progress on the terminal."""

from __future__ import annotations

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.native import build_native

try:
    build_native(of_this_clone())
except BuildError as error:
    raise SystemExit(f"pyggml: {error}") from None
