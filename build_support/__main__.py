"""`python -m build_support`: the long part of an installation on its own, with its progress on the terminal.
`python -m build_support page`: only the chat page, put into its place in this clone."""

from __future__ import annotations

import sys

from build_support.build_error import BuildError
from build_support.layout import of_this_clone
from build_support.native import build_native, build_page_alone

try:
    match sys.argv[1:]:
        case []:
            build_native(of_this_clone())
        case ["page"]:
            build_page_alone(of_this_clone())
        case others:
            raise BuildError(f"{' '.join(others)} cannot be built", "python -m build_support [page]")
except BuildError as error:
    raise SystemExit(f"pyggml: {error}") from None
